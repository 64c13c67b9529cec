"""`binlog-server recover`: a backup of mariadb-backup, brought to a point in time by replication.

The steps are a shell script. `--print` writes it, without passwords, to be read and run by hand; otherwise it is run
here. There is one account of them, so what was printed is what is done.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any, Final

from binlog_protocol.dump.target import HistoryEnd, utc_text
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import U32_MAX, SlavePosition
from binlog_storage.console.arguments import add_json, gtid_position, number_argument
from binlog_storage.console.output import show_json
from binlog_storage.console.running import EXIT_FAILED
from binlog_storage.disk.local_path import path_argument

from binlog_server.cli.seed_backup import backup_position
from binlog_server.settings.config import ConfigError
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import Password, PasswordUnavailable

_EPILOG: Final = """
The backup is prepared and copied into an empty data directory; a mariadbd on that directory, which nobody else reaches,
follows SOURCE up to the point, and is stopped. Then start it with your own configuration. SOURCE is a binlog-server
that has all from the backup up to the point: where that was purged, `binlog-server serve --archive`.

examples:
  binlog-server find /var/lib/binlog --table shop.orders --op drop         "before" is the point
  binlog-server recover --backup /srv/backup --datadir /srv/recovered \\
      --source mariadb://repl@relay:3306 --password-file pw --until 0-1-4711 --print
  binlog-server recover ... --until 2026-11-20T09:00:00Z

The programs are those of the PATH: of the version that has made the backup. The variables MARIADB_BACKUP, MARIADBD and
MARIADB name others, with options: MARIADB='mariadb --defaults-file=root.cnf'. docs/point-in-time.md has more.
"""
_USER_CHARS_MAX: Final = 128  # of a user in CHANGE MASTER


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "recover",
        help="bring a backup of mariadb-backup to a point in time",
        description="Bring a backup of mariadb-backup to a point in time, by replication from a binlog-server.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--backup", type=path_argument, required=True, metavar="DIR", help="of mariadb-backup")
    add("--datadir", type=path_argument, required=True, metavar="DIR", help="empty, or made")
    add("--source", required=True, metavar="mariadb://USER@HOST:PORT", help="a binlog-server")
    add(
        "--password-file", type=path_argument, metavar="FILE", help="its first line is the password"
    )
    add("--until", required=True, metavar="POINT", help="GTIDs, or a time with Z or an offset")
    add("--start-position", metavar="GTIDS", help="of the backup, if it does not say it")
    number = number_argument(1, U32_MAX)
    add("--server-id", type=number, default=4_000_000_001, metavar="N", help="unlike all others")
    add("--print", "--dry-run", action="store_true", help="print the steps, do nothing")
    add_json(parser)
    parser.set_defaults(run=run, makes="datadir")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code. Raises `ConfigError`, `StorageError`."""
    until = _until(arguments.until)
    try:
        source = _source(arguments.source)
        if arguments.start_position is not None:
            position = gtid_position(arguments.start_position)
        else:
            position, _ = backup_position(arguments.backup)
        password = _password(arguments, source)
    except (ServerError, ValueError, PasswordUnavailable) as error:
        raise ConfigError(str(error)) from None
    text = script(
        backup=Path(os.path.realpath(arguments.backup)),
        datadir=Path(os.path.realpath(arguments.datadir)),
        source=source,
        until=until,
        position=position,
        server_id=arguments.server_id,
    )
    told = {
        "datadir": os.path.realpath(arguments.datadir),
        "begin": str(position),
        "until": until,
        "reached": None,
        "steps": text,
        "dry_run": arguments.print,
    }
    if arguments.print and not arguments.json:
        print(text, end="")
    elif not arguments.print:
        if arguments.datadir.exists() and any(arguments.datadir.iterdir()):
            raise ConfigError(f"--datadir {arguments.datadir} is not empty")
        reached = _run(text, password)
        if reached is None:
            return EXIT_FAILED
        told["reached"] = reached.strip()
        if not arguments.json:
            print(reached, end="")
    if arguments.json:
        show_json(told)
    return 0


def _run(text: str, password: str) -> str | None:
    """Do the steps. Returns what the last one prints; None if one has failed, which it has said."""
    environment = {**os.environ, "MASTER_PASSWORD": password}
    argv = ["bash", "-c", text]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as steps:
        try:
            out, _ = steps.communicate()
        except KeyboardInterrupt:
            steps.terminate()  # SIGTERM came to this process alone; behind the step it is at it stops its server
            steps.wait()
            raise
    return out if steps.returncode == 0 else None


def _source(url: str) -> MasterInfo:
    """Raises `ConfigError`."""
    try:
        return MasterInfo.from_url(url)
    except ValueError as error:
        raise ConfigError(f"--source: {error}") from None


def _until(text: str) -> str:
    """The point as the end of a name has it: a time in UTC. Raises `ConfigError`."""
    try:
        end = HistoryEnd.parse(text, None)
    except ValueError as error:
        raise ConfigError(f"--until: {error}") from None
    return str(end.position) if end.time is None else utc_text(end.time)


def _password(arguments: argparse.Namespace, source: MasterInfo) -> str:
    """Raises `PasswordUnavailable`."""
    if arguments.print:
        return ""
    password = source.password
    if arguments.password_file is not None:
        password = Password(file=str(arguments.password_file))
    return password.read()


_HEAD: Final = """\
#!/bin/bash
# The backup, which is at the position, is brought to the point, in the data directory: all of them stand below.
# MASTER_PASSWORD is the password of the user at the source. Run this as the user of your mariadbd.
set -euo pipefail
: "${MASTER_PASSWORD?}" "${MARIADB_BACKUP:=mariadb-backup}" "${MARIADBD:=mariadbd}" "${MARIADB:=mariadb}"
"""
_BODY: Final = r"""
socket=$(mktemp -d)/s
mariadbd=
sql() { $MARIADB --batch --skip-column-names --skip-ssl --socket="$socket" "$@"; }
field() { $MARIADB --skip-ssl --socket="$socket" --vertical --execute 'SHOW SLAVE STATUS' | sed -n "s/^ *$1: *//p"; }
fail() { echo "recover: $*" >&2; exit 1; }
leave() {
    status=$?
    if [ -n "$mariadbd" ] && kill "$mariadbd" 2>/dev/null; then wait "$mariadbd" || true; fi
    rm -rf "${socket%/s}"
    exit $status
}
trap leave EXIT
trap 'exit 1' INT TERM

if [ "$(id -u)" = 0 ] && [[ "$MARIADBD ${MARIADBD_OPTIONS-}" != *--user=* ]]; then
    fail "as root mariadbd does not start: run this as its user (runuser -u mysql -- ...),\
 or say MARIADBD_OPTIONS=--user=..."
fi
echo "recover: 1. prepare the backup, copy it into the data directory" >&2
log="$datadir.recover.log"
mkdir -p "$datadir"
$MARIADB_BACKUP --prepare --target-dir="$backup" >"$log" 2>&1 || fail "mariadb-backup --prepare failed, see $log"
$MARIADB_BACKUP --copy-back --target-dir="$backup" --datadir="$datadir" >>"$log" 2>&1 ||
    fail "mariadb-backup --copy-back failed, see $log"

echo "recover: 2. start a server on it that nobody else reaches" >&2
$MARIADBD --defaults-file="$backup/backup-my.cnf" --datadir="$datadir" --socket="$socket" --pid-file="$socket.pid" \
    --skip-networking --skip-slave-start --server-id="$server_id" --gtid-strict-mode=1 --event-scheduler=OFF \
    ${MARIADBD_OPTIONS-} >>"$log" 2>&1 &
mariadbd=$!
until sql --execute 'SELECT 1' >/dev/null 2>"$socket.error"; do
    kill -0 "$mariadbd" 2>/dev/null || fail "mariadbd did not start, see $log"
    if grep -q 'ERROR 1045\|ERROR 1698' "$socket.error"; then
        fail "$(cat "$socket.error"): say MARIADB='mariadb --defaults-file=...' with an account that has SUPER"
    fi
    sleep 0.2
done

echo "recover: 3. follow $host:$port up to $until" >&2
password=${MASTER_PASSWORD//\\/\\\\}
password=${password//\'/\\\'}
sql <<SQL
SET GLOBAL gtid_slave_pos = '$position';
CHANGE MASTER TO MASTER_HOST='$host', MASTER_PORT=$port, MASTER_USER='$user+until=$until+stop',
    MASTER_PASSWORD='$password', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=5;
START SLAVE;
SQL
until [ "$(field Slave_IO_Running)" = No ]; do
    [ "$(field Slave_SQL_Running)" = Yes ] || fail "a group failed: $(field Last_SQL_Error)"
    sleep 0.5
done
case "$(field Last_IO_Error)" in
*'The login ends at '*'that is reached'*) ;;
*) fail "the source sends no more: $(field Last_IO_Error)" ;;
esac
received=$(field Gtid_IO_Pos)
until [ "$(sql --execute "SELECT MASTER_GTID_WAIT('$received', 1)")" = 0 ]; do
    [ "$(field Slave_SQL_Running)" = Yes ] || fail "a group failed: $(field Last_SQL_Error)"
done

echo "recover: 4. it is done: follow nobody, stop" >&2
reached=$(sql --execute 'SELECT @@GLOBAL.gtid_slave_pos')
sql --execute 'STOP SLAVE; RESET SLAVE ALL'
kill "$mariadbd"
wait "$mariadbd"
mariadbd=
echo "recover: $datadir is at gtid_slave_pos '$reached': start your mariadbd on it" >&2
echo "$reached"
"""


def script(
    *,
    backup: Path,
    datadir: Path,
    source: MasterInfo,
    until: str,
    position: SlavePosition,
    server_id: int,
) -> str:
    """The steps, for bash; without the password. Raises `ConfigError`: the name of the login would be too long."""
    if len(f"{source.user}+until={until}+stop") > _USER_CHARS_MAX:
        raise ConfigError(
            f"--until: with it the name of the login has more than the {_USER_CHARS_MAX} characters that MariaDB "
            "takes. Say a time, or fewer domains"
        )
    for name, text in (("user", source.user), ("host", source.host)):
        if not set(text).isdisjoint("'\\"):
            raise ConfigError(f"--source: a {name} with quotes or backslashes is not taken")
    values = {
        "backup": str(backup),
        "datadir": str(datadir),
        "host": source.host,
        "port": str(source.port),
        "user": source.user,
        "until": until,
        "position": str(position),
        "server_id": str(server_id),
    }
    settings = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    return _HEAD + settings + _BODY
