#!/bin/bash
# Builds a package for Debian and Ubuntu of this checkout:  make-deb.sh [FOLDER]   (default: dist)
#
# The programs have an environment of their own in /opt/binlog-server, with their dependencies as pip gets them, for the
# python3 of this machine: build it where it is to be installed, or in a container of that version. dpkg-deb makes it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
python=${PYTHON:-/usr/bin/python3}
out=$(mkdir -p "${1:-$root/dist}" && cd "${1:-$root/dist}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pip writes the path of the environment into its programs: it is made under a name of the same length, and moved.
stage=$work/stage
home=/opt/binlog-server
"$python" -m venv --clear "$stage$home"
"$stage$home/bin/pip" --quiet --disable-pip-version-check install "$root[texts]"
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s) \
    "$stage$home/bin/python" "$here/texts.py" "$stage/usr/share" >/dev/null
"$stage$home/bin/pip" --quiet --disable-pip-version-check uninstall -y shtab argparse-manpage
gzip -9n "$stage"/usr/share/man/man1/*.1
grep -rIl "$stage" "$stage$home/bin" "$stage$home/pyvenv.cfg" | xargs -r sed -i "s#$stage##g"
find "$stage$home" -name __pycache__ -prune -exec rm -rf {} +

version=$("$stage$home/bin/python" -B -c 'from importlib.metadata import version; print(version("binlog-server"))')
series=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
next=$("$python" -c 'import sys; print("%d.%d" % (sys.version_info[0], sys.version_info[1] + 1))')
arch=$(dpkg --print-architecture)

mkdir -p "$stage/usr/bin" "$stage/lib/systemd/system" "$stage/etc/binlog-server" "$stage/usr/share/doc/binlog-server" "$stage/DEBIAN"
for program in binlog-server binlog-spark; do ln -s "$home/bin/$program" "$stage/usr/bin/$program"; done
install -m 644 "$root/docs/binlog-server.service" "$stage/lib/systemd/system/"
install -m 640 "$here/server.toml" "$stage/etc/binlog-server/server.toml"
install -m 644 "$root/LICENSE" "$stage/usr/share/doc/binlog-server/copyright"
echo /etc/binlog-server/server.toml >"$stage/DEBIAN/conffiles"
cat >"$stage/DEBIAN/control" <<CONTROL
Package: binlog-server
Version: $version
Architecture: $arch
Maintainer: the authors of binlog-server <root@localhost>
Depends: python3 (>= $series), python3 (<< $next), adduser
Installed-Size: $(du -sk --exclude=DEBIAN "$stage" | cut -f1)
Section: database
Priority: optional
Description: MariaDB replication server over a binlog store
 It follows MariaDB masters as a replica would, keeps their binlog in a
 crash-safe store, and serves it to any number of replicas as a master would.
CONTROL
cat >"$stage/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    addgroup --system --quiet binlog-server
    chgrp binlog-server /etc/binlog-server/server.toml
    # The service may not write there: what is not compiled now, each start would compile. Some modules are templates.
    /opt/binlog-server/bin/python -m compileall -q -j 0 /opt/binlog-server/lib >/dev/null 2>&1 || true
    /opt/binlog-server/bin/python -I -c 'from binlog_server.sql.parser import build_grammars; build_grammars()'
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        # An upgrade refuses no connection: the server that runs starts the new version in its place.
        if [ -n "$2" ] && systemctl is-active --quiet binlog-server; then
            systemctl kill --kill-who=main -s USR2 binlog-server
        fi
    fi
fi
SCRIPT
cat >"$stage/DEBIAN/prerm" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now --quiet binlog-server; fi
# What postinst has made, modules and tables of grammars: dpkg knows none of it, and would leave the folders.
find /opt/binlog-server -name __pycache__ -prune -exec rm -rf {} +
SCRIPT
cat >"$stage/DEBIAN/postrm" <<'SCRIPT'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
SCRIPT
chmod 755 "$stage/DEBIAN/postinst" "$stage/DEBIAN/prerm" "$stage/DEBIAN/postrm"
dpkg-deb --root-owner-group --build "$stage" "$out/binlog-server_${version}_$arch.deb"
