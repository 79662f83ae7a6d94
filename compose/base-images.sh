#!/usr/bin/env bash
# Base images without an image registry:   bash compose/base-images.sh [python] [java]
#
# Each is a minimal Debian of the same release as this machine, from the mirror that this machine's apt uses, with
# one thing in it: Python, or a Java runtime. Made by debootstrap (root, about a minute each), kept as a file in
# ${GEOEMU_CACHE:-~/.cache/geoemu}, and not made again while the engine or that folder has it.
#
# With a registry none of this is needed: name its images instead (docs/CONTAINERS.md).
set -euo pipefail

CACHE=${GEOEMU_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/geoemu}

complain() { echo "base-images: $*" >&2; exit 2; }

main() {
    local variant
    [[ $# -gt 0 ]] || set -- python java
    for variant in "$@"; do provide "$variant"; done
}

provide() {
    local variant=$1 packages image file
    case $variant in
        python) packages=python3 ;;
        java) packages=openjdk-17-jre-headless ;;
        *) complain "no base image $variant: python or java" ;;
    esac
    image=geoemu-base-$variant:local
    file=$CACHE/base-$variant-$(. /etc/os-release && echo "${VERSION_CODENAME:-unknown}")-$(dpkg --print-architecture).tar
    if docker image inspect "$image" >/dev/null 2>&1; then
        echo "$image is there"
        return
    fi
    [[ -s $file ]] || bootstrap "$packages" "$file"
    docker import --change 'ENV LANG=C.UTF-8' --change 'CMD ["bash"]' "$file" "$image" >/dev/null
    echo "$image is made from $file"
}

# The variant's packages on a bare Debian, as a tar file without anything that tells when or where it was made.
bootstrap() {
    local packages=$1 file=$2 root codename mirror
    [[ $EUID -eq 0 ]] || complain "debootstrap needs root. Type: sudo bash compose/base-images.sh"
    command -v debootstrap >/dev/null || complain "debootstrap is missing. Type: apt-get install debootstrap"
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mirror=$(debian_mirror "$codename")
    [[ -n $mirror ]] || complain "apt's sources name no Debian mirror for $codename"
    mkdir -p "$CACHE"
    root=$(mktemp -d "$CACHE/root.XXXXXX")
    # shellcheck disable=SC2064 # now, not later
    trap "rm -rf '$root'" EXIT
    debootstrap --variant=minbase --include="$packages" "$codename" "$root" "$mirror" >"$CACHE/debootstrap.log" 2>&1 ||
        { tail -n 5 "$CACHE/debootstrap.log" >&2; complain "debootstrap failed: $CACHE/debootstrap.log"; }
    trim "$root"
    tar --numeric-owner --sort=name --mtime=@0 -C "$root" -cf "$file.part" .
    mv "$file.part" "$file"
    rm -rf "$root"
}

# What apt calls Debian's own; other sources (backports, third parties) are no place to begin from.
debian_mirror() {
    apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v codename="$1" '$1 == "Debian" && $2 == codename && $3 == "main" { print $4; exit }'
}

trim() {
    local root=$1
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/tmp/* \
        "$root"/usr/share/{doc,man,info,locale,lintian,bug}/* "$root"/var/cache/debconf/*-old \
        "$root"/var/lib/dpkg/*-old "$root"/etc/{hostname,resolv.conf,machine-id}
    find "$root" -depth -name __pycache__ -exec rm -rf {} +
}

main "$@"
