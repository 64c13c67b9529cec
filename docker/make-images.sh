#!/bin/bash
# Builds the images of this folder:  make-images.sh [mariadb-10.11] [mariadb-11.8] [server] [spark]
# (default: the two MariaDB images). Nothing is done for an image that was built from the same files.
#
# Bases are pulled where a registry answers; where none does, local stand-ins of the same name are
# made from the distribution's packages (mmdebstrap; needs root).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
export DOCKER_BUILDKIT=${DOCKER_BUILDKIT:-0}   # Debian's engine comes without buildx; both builders will do
[ $# -gt 0 ] || set -- mariadb-10.11 mariadb-11.8

work=
cleanup() { [ -z "$work" ] || rm -rf "$work"; }
trap cleanup EXIT

make_work_dir() {
    # A chroot is unpacked there: in memory if there is room and programs may run (in a container
    # /dev/shm is mounted noexec).
    local dir
    for dir in /dev/shm "${TMPDIR:-/tmp}"; do
        work=$(mktemp -d -p "$dir" 2>/dev/null) || continue
        if cp /bin/true "$work/probe" && "$work/probe" 2>/dev/null &&
            [ "$(df --output=avail -m "$work" | tail -1)" -gt 2000 ]; then
            return
        fi
        rm -rf "$work"
        work=
    done
    echo "make-images: no place to unpack in" >&2
    exit 1
}

step() {   # step NAME COMMAND...: quiet, one line with the time, the log only on failure
    local name=$1 start=$EPOCHREALTIME log
    shift
    log=$work/$name.log
    if ! "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "make-images: $name failed" >&2
        return 1
    fi
    awk -v a="$start" -v b="$EPOCHREALTIME" -v n="$name" 'BEGIN { printf "image %-16s %5.1f s\n", n, b - a }'
}

has_image() { docker image inspect "$1" >/dev/null 2>&1; }
pull() { timeout "${PULL_TIMEOUT:-120}" docker pull -q "$1" >/dev/null 2>&1; }

debian_base() {   # debian_base SUITE -> debian:SUITE-slim
    local suite=$1 tag=debian:$1-slim lock
    exec {lock}>"$work/$suite.lock"   # two images may want the same base
    flock "$lock"
    if has_image "$tag" || pull "$tag"; then return; fi
    command -v mmdebstrap >/dev/null || { echo "cannot pull $tag, and there is no mmdebstrap to make it"; return 1; }
    local options=(--variant=minbase --dpkgopt=force-unsafe-io --aptopt='Acquire::Languages "none"')
    local name
    for name in doc man locale info; do options+=(--dpkgopt="path-exclude=/usr/share/$name/*"); done
    # Without the hook bookworm comes with Perl and 50 MB more.
    [ "$suite" != bookworm ] || options+=(--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --include=usr-is-merged)
    # No mirror argument: mmdebstrap writes the distribution's own sources. By way of a file: in a
    # pipe a failed mmdebstrap would still leave an (empty) image behind.
    TMPDIR=$work mmdebstrap "${options[@]}" "$suite" "$work/$suite.tar"
    docker import -c 'CMD ["bash"]' "$work/$suite.tar" "$tag"
    rm -f "$work/$suite.tar"
}

python_base() {   # -> python:3.11-slim; bookworm's python3 is 3.11
    local tag=python:3.11-slim context=$work/python lock
    exec {lock}>"$work/python.lock"   # as above
    flock "$lock"
    if has_image "$tag" || pull "$tag"; then return; fi
    debian_base bookworm
    # Where TLS goes through a gateway with an authority of its own, this machine knows it.
    mkdir -p "$context/authorities"
    cp /usr/local/share/ca-certificates/*.crt "$context/authorities/" 2>/dev/null || true
    touch "$context/authorities/.keep"
    cat >"$context/Dockerfile" <<'DOCKERFILE'
FROM debian:bookworm-slim
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
      python3 python3-venv ca-certificates && rm -rf /var/lib/apt/lists/* && ln -s python3 /usr/bin/python
COPY authorities/ /usr/local/share/ca-certificates/
RUN update-ca-certificates
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt
DOCKERFILE
    docker build -t "$tag" "$context"
}

digest() { tar -c --exclude=__pycache__ --exclude='*.so' --sort=name --mtime=@0 --owner=0 --group=0 -C "$root" "$@" | sha256sum | cut -c1-16; }
is_current() { [ "$(docker image inspect -f '{{index .Config.Labels "binlog-test.digest"}}' "$1" 2>/dev/null)" = "$2" ]; }

mariadb_image() {   # mariadb_image VERSION SUITE
    debian_base "$2" && docker build -t "binlog-test/mariadb:$1" --build-arg "BASE=debian:$2-slim" \
        --label "binlog-test.digest=$(digest docker/mariadb)" "$here/mariadb"
}
server_image() {
    python_base && docker build -t binlog-test/server:dev -f "$here/server/Dockerfile" \
        --label "binlog-test.digest=$(digest "${server_files[@]}")" "$root"
}
spark_image() {
    python_base && docker build -t binlog-test/spark:dev -f "$here/spark/Dockerfile" \
        --label "binlog-test.digest=$(digest "${spark_files[@]}")" "$root"
}
package=(pyproject.toml hatch_build.py README.md LICENSE binlog_server protocol storage pipeline)
server_files=("${package[@]}" docker/server/Dockerfile)
spark_files=("${package[@]}" docker/spark/Dockerfile)

jobs=()
start() {   # start NAME TAG DIGEST COMMAND...: side by side, they wait on network and dpkg by turns
    local name=$1 tag=$2 digest=$3
    shift 3
    if is_current "$tag" "$digest"; then return; fi
    [ -n "$work" ] || make_work_dir
    step "$name" "$@" &
    jobs+=($!)
}
for image in "$@"; do
    case $image in
    mariadb-10.11) start "$image" binlog-test/mariadb:10.11 "$(digest docker/mariadb)" mariadb_image 10.11 bookworm ;;
    mariadb-11.8) start "$image" binlog-test/mariadb:11.8 "$(digest docker/mariadb)" mariadb_image 11.8 trixie ;;
    server) start "$image" binlog-test/server:dev "$(digest "${server_files[@]}")" server_image ;;
    spark) start "$image" binlog-test/spark:dev "$(digest "${spark_files[@]}")" spark_image ;;
    *) echo "make-images: no such image: $image" >&2; exit 2 ;;
    esac
done
status=0
for job in "${jobs[@]}"; do wait "$job" || status=1; done
# what the new ones took the names from
[ ${#jobs[@]} = 0 ] || docker image prune -f --filter label=binlog-test.digest >/dev/null
exit $status
