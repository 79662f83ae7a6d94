# Steps of a CI run, sourced by .ci/run and .ci/long. Every step runs even if one fails. `finish` prints the minutes of
# each step, and one line that says how the run went.
# shellcheck shell=bash

failed=()
minutes=()

step() {
    local name=$1 started=$SECONDS outcome=passed
    shift
    printf '\n==== %s: %s\n' "$name" "$*"
    "$@" || { outcome="FAILED (exit code $?)"; failed+=("$name"); }
    minutes+=("$(printf '%5.1f min  %s: %s' "$(awk "BEGIN {print ($SECONDS - $started) / 60}")" "$name" "$outcome")")
    printf '==== %s: %s after %d s\n' "$name" "$outcome" $((SECONDS - started))
}

# Debian packages that tests use, where the machine lacks them and we are root. `command:package` each.
system_packages() {
    local wanted=() pair
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null || wanted+=("${pair#*:}")
    done
    if [[ ${#wanted[@]} -eq 0 ]]; then
        echo "all there: $*"
    elif [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
        apt-get -qq update &&
            DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "${wanted[@]}" >/dev/null
    else
        echo "cannot install ${wanted[*]} here: not root on a Debian"
        return 1
    fi
}

# What tests need on the machine: packages, the pinned Python packages, a Docker engine, the images.
prepare() {
    step "system packages" system_packages make:make java:openjdk-17-jre-headless javac:openjdk-17-jdk-headless \
        mvn:maven chromium:chromium go:golang-go cargo:cargo node:nodejs npm:npm prometheus:prometheus curl:curl \
        gcc:gcc python3-config:python3-dev
    step "set-up" make setup
    . .ci/docker.sh
    trap stop_docker EXIT
    step "docker engine" start_docker
    step "images" bash compose/images.sh
}

# How quick the machine is, to compare the minutes of two runs.
machine() {
    .venv/bin/python - <<'PROGRAM'
import os, statistics, tempfile, time
from multiprocessing import Pool

def seconds(action):
    started = time.perf_counter()
    action()
    return time.perf_counter() - started

def multiply(_=None):
    return seconds(lambda: sum(number * number for number in range(3_000_000)))

def write_and_sync(file):
    os.pwrite(file.fileno(), bytes(4096), 0)
    os.fsync(file.fileno())

processors = os.cpu_count()
with tempfile.TemporaryFile() as file:
    sync = statistics.median(seconds(lambda: write_and_sync(file)) for _ in range(50))
with Pool(processors) as pool:
    alone, together = multiply(), statistics.mean(pool.map(multiply, range(processors), 1))
print(f"machine: {processors} processors, three million multiplications {alone * 1000:.0f} ms, on all processors at once "
      f"{together * 1000:.0f} ms, a sync {sync * 1000:.2f} ms, load {os.getloadavg()[1]:.1f}")
PROGRAM
}

finish() {
    printf '\n'
    machine || true
    printf '%s\n' "${minutes[@]}"
    if [[ ${#failed[@]} -gt 0 ]]; then
        (IFS=,; echo "CI: FAILED: ${failed[*]}")
        exit 1
    fi
    echo "CI: passed after $SECONDS s"
}
