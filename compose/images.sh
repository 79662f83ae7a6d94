#!/usr/bin/env bash
# The images that `geoemu up --runtime compose` starts, the one that verifies a run inside its network, and the one for
# Testcontainers, which is a region with the commands of Pulsar's images:
#
#   bash compose/images.sh [region] [kafka] [spark] [testcontainers]
#
# Nothing comes from an image registry: the bases are made here (base-images.sh) unless you name others:
#   GEOEMU_PYTHON_BASE=python:3.11-slim-bookworm GEOEMU_JAVA_BASE=eclipse-temurin:17-jre bash compose/images.sh
# The region has compiled modules if this machine has a C compiler and the Python of the image; GEOEMU_COMPILED=no leaves
# them out.
# The builds have no network; wheels and jars are collected beforehand, from the packages' own registries.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-.venv/bin/python}
PYTHON_VERSION=${GEOEMU_PYTHON_VERSION:-3.11} # of the base image
CONTEXTS=build/images

complain() { echo "images: $*" >&2; exit 2; }

region_image() {
    local base=${GEOEMU_PYTHON_BASE:-} context=$CONTEXTS/region
    [[ -n $base ]] || { bash compose/base-images.sh python && base=geoemu-base-python:local; }
    mkdir -p "$context"
    "$PYTHON" compose/wheels.py "$context/wheels" "$PYTHON_VERSION" kafka security
    compiled_modules "$context/compiled"
    cp --preserve=mode compose/region/{Dockerfile,healthy} "$context"
    build "$context" "$base" "${GEOEMU_REGION_IMAGE:-geoemu-region:local}"
}

# The compiled modules of a region (scripts/compile.py), where this machine can make them for the image's Python. Made here
# and not in the build, which has no compiler; without them the image is slower, and works the same.
compiled_modules() {
    local folder=$1 here
    here=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    mkdir -p "$folder"
    if [[ ${GEOEMU_COMPILED:-yes} == no ]]; then
        rm -rf "$folder/emulator"
    elif [[ $here != "$PYTHON_VERSION" ]]; then
        rm -rf "$folder/emulator"
        echo "images: the region has no compiled modules: this is Python $here, the image's is $PYTHON_VERSION"
    elif ! "$PYTHON" scripts/compile.py export "$folder"; then
        rm -rf "$folder/emulator"
        echo "images: the region has no compiled modules"
    fi
}

testcontainers_image() {
    local region=${GEOEMU_REGION_IMAGE:-geoemu-region:local} context=$CONTEXTS/testcontainers
    mkdir -p "$context"
    "$PYTHON" compose/wheels.py "$context/wheels" "$PYTHON_VERSION" cli
    rm -rf "$context/pulsar"
    cp --preserve=mode --recursive compose/testcontainers/{Dockerfile,geoemu,pulsar} "$context"
    build "$context" "$region" "$region-testcontainers"
}

kafka_image() {
    local base=${GEOEMU_JAVA_BASE:-} context=$CONTEXTS/kafka
    [[ -n $base ]] || { bash compose/base-images.sh java && base=geoemu-base-java:local; }
    mkdir -p "$context"
    kafka_jars
    rm -rf "$context/libs"
    mkdir "$context/libs"
    cp "$JARS"/*.jar "$context/libs"
    cp --preserve=mode compose/kafka/{Dockerfile,start,train,common.properties,log4j2.properties} "$context"
    build "$context" "$base" "${GEOEMU_KAFKA_IMAGE:-geoemu-kafka:local}"
}

spark_image() {
    local base=${GEOEMU_JAVA_BASE:-} python=${GEOEMU_PYTHON_BASE:-} context=$CONTEXTS/spark wheels=$CONTEXTS/spark-wheels
    [[ -n $base ]] || { bash compose/base-images.sh java && base=geoemu-base-java:local; }
    [[ -n $python ]] || { bash compose/base-images.sh python && python=geoemu-base-python:local; }
    mkdir -p "$context"
    "$PYTHON" compose/wheels.py "$wheels" "$PYTHON_VERSION" kafka spark
    spark_packages "$wheels" "$context/lib"
    rm -rf "$context/ours"
    lay_out "$context/ours" "$wheels"/geoemu-*.whl
    rm -r "$context/ours/bin"
    cp --preserve=mode compose/spark/{Dockerfile,start} "$context"
    build "$context" "$base" "${GEOEMU_SPARK_IMAGE:-geoemu-spark:local}" --build-arg "PYTHON_BASE=$python"
}

# Laid out here and not in the build: half of it is left out, and would have to be carried there first.
spark_packages() {
    local wheels=$1 lib=$2 pattern inputs packages
    inputs=$(cat "$wheels/requirements.txt" compose/spark/leave-out)
    [[ -d $lib && $inputs == "$(cat "$lib.stamp" 2>/dev/null)" ]] && return
    rm -rf "$lib" "$lib.stamp"
    mapfile -t packages < <(find "$wheels" -name '*.whl' ! -name 'pip-*' ! -name 'geoemu-*')
    lay_out "$lib" "${packages[@]}"
    while read -r pattern; do
        # shellcheck disable=SC2086 # it is a pattern
        [[ -z $pattern || $pattern == \#* ]] || (cd "$lib" && rm -r $pattern) ||
            complain "compose/spark/leave-out: nothing is called $pattern"
    done <compose/spark/leave-out
    printf '%s\n' "$inputs" >"$lib.stamp"
}

lay_out() {
    local folder=$1
    shift
    "$PYTHON" -m pip --quiet --disable-pip-version-check install --no-index --no-deps --no-compile --target "$folder" \
        --only-binary :all: --python-version "$PYTHON_VERSION" --implementation cp "$@"
}

# Where Kafka as a process has them, too, with what lets it start quickly there.
kafka_jars() { JARS=$("$PYTHON" -m emulator.runtimes.region_kafka --fetch) || exit 2; }

build() {
    local context=$1 base=$2 image=$3
    shift 3
    # Files with the same content get the same date, or the same build would be another one each time.
    find "$context" -exec touch --no-dereference --date @0 {} +
    docker build --quiet --network none --build-arg "BASE=$base" --label "geoemu.sources=$SOURCES" "$@" \
        --tag "$image" "$context" >/dev/null 2>"$context.log" ||
        { tail -n 20 "$context.log" >&2; complain "$image could not be built: $context.log"; }
    echo "$image is built from $base: $(docker image inspect --format '{{.Size}}' "$image" | numfmt --to=si)B"
}

# Two builds at once would delete each other's wheels. The lock ends with this shell.
wait_for_other_builds() {
    mkdir -p "$CONTEXTS"
    exec 9>"$CONTEXTS/lock"
    ! command -v flock >/dev/null || flock 9
}

main() {
    local image
    docker info >/dev/null 2>&1 || complain "no Docker engine answers. Type: sudo systemctl start docker"
    wait_for_other_builds
    [[ $# -gt 0 ]] || set -- region kafka spark testcontainers
    # It is built on the region's image.
    [[ " $* " != *" testcontainers "* || " $* " == *" region "* ]] || set -- region "$@"
    for image in "$@"; do
        # What is built is what was there before: a change meanwhile makes the image stale, not fresh.
        SOURCES=$("$PYTHON" -m emulator.runtimes.image_sources "$image")
        "${image}_image"
    done
}

main "$@"
