// Package geotest starts several geo-replicated regions in one container for a test, and cuts, kills and heals them.
// Copy this file into a project and extend it: every verb of the command line works with Regions.Geoemu.
package geotest

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/go-connections/nat"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/exec"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	servicePort = 6650
	adminPort   = 8080
	topology    = `name: test
clusters: [geo]
links: {defaults: {latency_ms: 20}}
tenants: [public]
namespaces: {public/default: {regions: all, deduplication: true}}
settings: {proxy_through_service_url: true}
`
)

// Regions are the running regions of one container.
type Regions struct {
	t         *testing.T
	names     []string
	container *testcontainers.DockerContainer
}

// Image returns the image that GEOEMU_TESTCONTAINERS_IMAGE names, or else the one that compose/images.sh builds.
func Image() string {
	if name := os.Getenv("GEOEMU_TESTCONTAINERS_IMAGE"); name != "" {
		return name
	}
	return "geoemu-region:local-testcontainers"
}

// Start starts the regions; they end with the test.
func Start(t *testing.T, names ...string) *Regions {
	t.Helper()
	cluster, ports := "regions:\n", []string{}
	for number, name := range names {
		cluster += fmt.Sprintf("  %s: {service_port: %d, admin_port: %d}\n", name, servicePort+number, adminPort+number)
		ports = append(ports, fmt.Sprintf("%d/tcp", servicePort+number), fmt.Sprintf("%d/tcp", adminPort+number))
	}
	container, err := testcontainers.Run(context.Background(), Image(),
		testcontainers.WithFiles(
			testcontainers.ContainerFile{Reader: strings.NewReader(topology), ContainerFilePath: "/geo/topology.yaml", FileMode: 0o644},
			testcontainers.ContainerFile{Reader: strings.NewReader(cluster), ContainerFilePath: "/geo/clusters/geo.yaml", FileMode: 0o644},
		),
		testcontainers.WithCmd("sh", "-c", "cd /geo && exec geoemu up --listen 0.0.0.0 --insecure"),
		testcontainers.WithExposedPorts(ports...),
		testcontainers.WithWaitStrategyAndDeadline(2*time.Minute, wait.ForLog("ready after")),
	)
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	return &Regions{t, names, container}
}

// ServiceURL returns the URL for clients of a region.
func (r *Regions) ServiceURL(region string) string {
	return r.url("pulsar", servicePort, region)
}

// AdminURL returns the URL of the admin API of a region.
func (r *Regions) AdminURL(region string) string {
	return r.url("http", adminPort, region)
}

// Cut drops all traffic between two regions until Heal.
func (r *Regions) Cut(one, other string) { r.Geoemu("cut", one, other) }

// Heal undoes all faults of links, and waits until they are up.
func (r *Regions) Heal() { r.Geoemu("heal") }

// Kill kills a region with SIGKILL.
func (r *Regions) Kill(region string) { r.Geoemu("kill", region) }

// Start starts a killed region, and waits until it is ready.
func (r *Regions) Start(region string) { r.Geoemu("start", region) }

// Geoemu runs a verb of geoemu's command line, and returns its output.
func (r *Regions) Geoemu(arguments ...string) string {
	r.t.Helper()
	command := append([]string{"geoemu"}, arguments...)
	code, output, err := r.container.Exec(context.Background(), command, exec.WithWorkingDir("/geo"), exec.Multiplexed())
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := io.ReadAll(output)
	if err != nil || code != 0 {
		r.t.Fatalf("%v ended with %d: %s %v", command, code, text, err)
	}
	return string(text)
}

func (r *Regions) url(scheme string, first int, region string) string {
	r.t.Helper()
	number := slices.Index(r.names, region)
	if number < 0 {
		r.t.Fatalf("%s is none of %v", region, r.names)
	}
	url, err := r.container.PortEndpoint(context.Background(), nat.Port(fmt.Sprintf("%d/tcp", first+number)), scheme)
	if err != nil {
		r.t.Fatal(err)
	}
	return url
}
