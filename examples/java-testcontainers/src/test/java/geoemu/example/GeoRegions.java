package geoemu.example;

import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.images.builder.Transferable;
import org.testcontainers.utility.DockerImageName;

/**
 * Several geo-replicated regions in one container, started once per test class; after each test all regions run and all
 * links are up. Copy this file into a project and extend it: every verb of the command line works with {@link #geoemu}.
 */
public class GeoRegions implements BeforeAllCallback, AfterEachCallback, AfterAllCallback {

    static final String IMAGE =
            System.getenv().getOrDefault("GEOEMU_TESTCONTAINERS_IMAGE", "geoemu-region:local-testcontainers");
    private static final int SERVICE_PORT = 6650;
    private static final int ADMIN_PORT = 8080;

    private final List<String> names;
    private final GenericContainer<?> container;

    public GeoRegions(String... names) {
        this.names = List.of(names);
        this.container = new GenericContainer<>(DockerImageName.parse(IMAGE))
                .withCopyToContainer(Transferable.of(topology()), "/geo/topology.yaml")
                .withCopyToContainer(Transferable.of(cluster()), "/geo/clusters/geo.yaml")
                .withWorkingDirectory("/geo")
                .withCommand("geoemu", "up", "--listen", "0.0.0.0", "--insecure")
                .withExposedPorts(IntStream.range(0, names.length).boxed()
                        .flatMap(n -> List.of(SERVICE_PORT + n, ADMIN_PORT + n).stream()).toArray(Integer[]::new))
                .waitingFor(Wait.forLogMessage(".*ready after.*", 1));
    }

    private String topology() {
        return """
                name: test
                clusters: [geo]
                links: {defaults: {latency_ms: 20}}
                tenants: [public]
                namespaces: {public/default: {regions: all, deduplication: true}}
                settings: {proxy_through_service_url: true}
                """;
    }

    private String cluster() {
        return IntStream.range(0, names.size())
                .mapToObj(n -> "  %s: {service_port: %d, admin_port: %d}\n".formatted(
                        names.get(n), SERVICE_PORT + n, ADMIN_PORT + n))
                .collect(Collectors.joining("", "regions:\n", ""));
    }

    public String serviceUrl(String region) {
        return "pulsar://%s:%d".formatted(container.getHost(), container.getMappedPort(SERVICE_PORT + number(region)));
    }

    public String adminUrl(String region) {
        return "http://%s:%d".formatted(container.getHost(), container.getMappedPort(ADMIN_PORT + number(region)));
    }

    public void cut(String one, String other) {
        geoemu("cut", one, other);
    }

    public void heal() {
        geoemu("heal");
    }

    public void kill(String region) {
        geoemu("kill", region);
    }

    public void start(String region) {
        geoemu("start", region);
    }

    /** Runs a verb of geoemu's command line and returns its output. */
    public String geoemu(String... arguments) {
        try {
            var command = java.util.stream.Stream.concat(java.util.stream.Stream.of("geoemu"), List.of(arguments).stream());
            var result = container.execInContainer(command.toArray(String[]::new));
            if (result.getExitCode() != 0) {
                throw new IllegalStateException(result.getStderr() + result.getStdout());
            }
            return result.getStdout();
        } catch (java.io.IOException failure) {
            throw new java.io.UncheckedIOException(failure);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(interrupted);
        }
    }

    private int number(String region) {
        int number = names.indexOf(region);
        if (number < 0) {
            throw new IllegalArgumentException(region + " is none of " + names);
        }
        return number;
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        container.start();
    }

    @Override
    public void afterEach(ExtensionContext context) {
        names.forEach(this::start);
        heal();
    }

    @Override
    public void afterAll(ExtensionContext context) {
        container.stop();
    }
}
