# A Docker engine for the tests of containers, sourced by .ci/run: one that runs is used; otherwise Debian's is
# installed and started, and stopped again when the run ends.
# shellcheck shell=bash

DOCKERD_LOG=${TMPDIR:-/tmp}/geoemu-ci-dockerd.log
DOCKERD_SECONDS=60
dockerd_pid=

start_docker() {
    if docker info >/dev/null 2>&1; then
        echo "an engine runs: $(docker version --format '{{.Server.Version}}')"
        return
    fi
    [[ $EUID -eq 0 ]] || { echo "no Docker engine runs, and only root could start one"; return 1; }
    if ! command -v dockerd debootstrap iptables >/dev/null || ! command -v docker >/dev/null; then
        apt-get -qq update &&
            DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends \
                docker.io debootstrap iptables >/dev/null || return
    fi
    # The package may have started it.
    docker info >/dev/null 2>&1 && { echo "an engine runs since it was installed"; return; }
    local driver
    for driver in overlay2 vfs; do # vfs works everywhere, and slowly
        start_dockerd "$driver" && return
    done
    tail -n 20 "$DOCKERD_LOG"
    return 1
}

start_dockerd() {
    local driver=$1 deadline=$((SECONDS + DOCKERD_SECONDS))
    dockerd --storage-driver "$driver" >"$DOCKERD_LOG" 2>&1 &
    dockerd_pid=$!
    until docker info >/dev/null 2>&1; do
        if [[ $SECONDS -gt $deadline ]] || ! kill -0 "$dockerd_pid" 2>/dev/null; then
            stop_docker
            return 1
        fi
        sleep 0.2
    done
    echo "started an engine: $(docker version --format '{{.Server.Version}}'), storage driver $driver, log $DOCKERD_LOG"
}

# Only the one that we started.
stop_docker() {
    [[ -n $dockerd_pid ]] || return 0
    kill "$dockerd_pid" 2>/dev/null || true
    wait "$dockerd_pid" 2>/dev/null || true
    dockerd_pid=
}
