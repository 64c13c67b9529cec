"""The unit of docs/service.md under a real systemd, and the package of docs/install.md on it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from binlog_server.testing.waiting import until
from tests.integration.runbooks import runbooks
from tests.kit import systemd
from tests.kit.programs import program
from tests.kit.systemd import HOME, Systemd
from tests.shell_blocks import ROOT, blocks, commands

pytestmark = pytest.mark.long

UNIT = "binlog-server.service"
CONFIGURATION = """
server_id = 10
max_binlog_size = "1M"
innodb_log_file_size = "4M"
[users]
repl = "secret"
admin = { password = "admin-secret", grants = ["ALL PRIVILEGES"] }
"""
DROP_INS = "/etc/systemd/system/binlog-server.service.d"


class Service:
    """The unit, in a systemd of its own."""

    def __init__(self, manager: Systemd) -> None:
        self.manager = manager

    @property
    def pid(self) -> str:
        return self.manager.shows(UNIT, "MainPID")

    @property
    def is_active(self) -> bool:
        return self.manager.shows(UNIT, "ActiveState") == "active"

    def changes(self, name: str, before: str) -> None:
        """Wait until a property of the unit is another one."""
        until(lambda: self.manager.shows(UNIT, name) != before, f"{name} changes", timeout=60)

    def becomes(self, name: str, value: str) -> None:
        """Wait until a property of the unit is that."""
        until(lambda: self.manager.shows(UNIT, name) == value, f"{name} is {value}", timeout=60)

    def ctl(self, *words: str) -> None:
        self.manager.run("systemctl", *words)

    def logs_in(self, user: str = "repl", port: int = 3306) -> bool:
        """A client may log in now: nobody waits for it."""
        login = ["-h127.0.0.1", f"-P{port}", f"-u{user}", "-psecret", "--skip-ssl"]
        asked = [program("mariadb"), *login, "-N", "-e", "SELECT 'here'"]
        return self.manager.tried(*asked).stdout.strip() == "here"

    def log(self) -> str:
        return self.manager.run("journalctl", "--no-pager", "--output=cat", f"--unit={UNIT}")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    systemd.require()
    manager = Systemd(tmp_path)
    yield Service(manager)
    print(manager.run("journalctl", "--no-pager", "--unit", UNIT))  # shown where it fails
    manager.close()


def by_the_page(service: Service) -> None:
    """The commands of docs/service.md, but for the one that asks a package index."""
    (block,) = (b for b in blocks("docs/service.md") if "/etc/systemd/system/" in b.text)
    service.manager.write("/root/server.toml", CONFIGURATION)
    service.manager.path("/root/docs").symlink_to("/opt/checkout/docs")
    installs, *others = commands(block.text)
    assert installs == f"python3 -m venv {HOME} && {HOME}/bin/pip install ."
    service.manager.install_checkout()
    for command in others:
        service.manager.run("sh", "-c", f"cd /root && {command}")


def read_again(service: Service) -> None:
    """Another account, with the same process."""
    first = service.pid
    service.manager.write("/etc/binlog-server/server.toml", CONFIGURATION.replace("repl", "other"))
    service.ctl("reload", UNIT)
    until(lambda: service.logs_in("other"), "the configuration is read again")
    assert not service.logs_in()
    assert service.pid == first


def handed_over(service: Service) -> None:
    """A new process in the place of the first."""
    first = service.pid
    service.ctl("kill", "--kill-whom=main", "--signal=USR2", UNIT)
    service.changes("MainPID", first)
    service.becomes("StatusText", "serving")
    assert service.is_active
    assert service.logs_in()


def mended(service: Service) -> None:
    """A file is damaged, and the runbook is executed as it stands there, by root."""
    manager, damaged = service.manager, "binlog-000000"
    for text in ("CREATE DATABASE a", "FLUSH BINARY LOGS", "CREATE DATABASE b"):
        admin(service, text)
    first, *others = shell_blocks("A file is damaged")
    by_root(service, first)
    with manager.path(f"/var/lib/private/binlog-server/{damaged}.ibb").open("r+b") as file:
        file.seek(16384 + 100)
        file.write(b"not what was written")
    for block in others:
        by_root(service, block.replace("<DAMAGED>", damaged))
    assert "Permission denied" not in service.log()
    owned_by_the_service(service)


def restored(service: Service) -> None:
    """The same with the runbook for a lost disk."""
    admin(service, "CREATE DATABASE a")
    for block in shell_blocks("Restore a relay"):
        by_root(service, block)
    shown = admin(service, "SELECT @@gtid_binlog_pos")
    assert shown == "0-10-1\n"
    owned_by_the_service(service)
    assert list(service.manager.path("/srv/lost").glob("*.ibb"))
    # What root does there while the service does not run is the service's, too.
    by_root(
        service,
        """systemctl stop binlog-server
        printf 'secret\\nsecret\\n' | binlog-server user add bob --directory /var/lib/binlog-server
        systemctl start binlog-server""",
    )
    assert service.logs_in("bob")
    owned_by_the_service(service)


def shell_blocks(title: str) -> list[str]:
    """Those of a runbook for the relay."""
    return [b.text for b in runbooks()[title] if b.kind == "sh" and b.hosts == ("relay",)]


def by_root(service: Service, text: str) -> None:
    """Lines of a shell on the host `relay`."""
    service.manager.write("/etc/hosts", "127.0.0.1 localhost relay\n")
    path = f"PATH={HOME}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    service.manager.run("env", path, "LD_LIBRARY_PATH=/opt/python/lib", "bash", "-euc", text)


def admin(service: Service, text: str) -> str:
    """What the server says to a statement."""
    login = ["-h127.0.0.1", "-uadmin", "-padmin-secret", "--skip-ssl"]
    return service.manager.run(program("mariadb"), *login, "-N", "-e", text)


def owned_by_the_service(service: Service) -> None:
    """Each file of the store, so that the server can open it."""
    folder = Path("/var/lib/private/binlog-server")
    files = [str(folder / path.name) for path in service.manager.path(folder).iterdir()]
    found = service.manager.run("stat", "--format", "%U", *files)
    assert set(found.split()) == {"binlog-serverd"}


@pytest.mark.parametrize("happens", [read_again, handed_over, mended, restored])
@pytest.mark.by_turns(4)
@pytest.mark.timeout(120)
def test_a_service(happens: Callable[[Service], None], service: Service) -> None:
    """As the page installs it: its user and store, what happens to it, its end."""
    manager = service.manager
    by_the_page(service)
    assert service.logs_in()  # who is started behind it finds it
    assert manager.shows(UNIT, "StatusText") == "serving"
    (store,) = manager.path("/var/lib/private").iterdir()
    owner = manager.run("stat", "--format", "%U %a", "/var/lib/private/binlog-server").split()
    assert (store.name, owner) == ("binlog-server", ["binlog-serverd", "700"])
    account = manager.run("ps", "--no-headers", "-o", "user:20", "-p", service.pid).strip()
    assert account == "binlog-serverd"
    happens(service)
    service.ctl("stop", UNIT)
    assert manager.shows(UNIT, "Result") == "success"
    assert manager.shows(UNIT, "StatusText") == "ended"
    assert manager.shows(UNIT, "NRestarts") == "0"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_that_hangs_is_begun_anew(service: Service) -> None:
    """By the watchdog: the process that systemd has started, and one that has taken its place."""
    manager = service.manager
    times = "WatchdogSec=2s\nTimeoutAbortSec=1s\nRestartSec=0\n"
    manager.write(f"{DROP_INS}/times.conf", f"[Service]\n{times}")
    by_the_page(service)
    for restarts in ("1", "2"):
        first = service.pid
        service.ctl("kill", "--kill-whom=main", "--signal=USR2", UNIT)
        service.changes("MainPID", first)
        seen = manager.shows(UNIT, "WatchdogTimestampMonotonic")
        service.changes("WatchdogTimestampMonotonic", seen)
        service.ctl("kill", "--kill-whom=main", "--signal=STOP", UNIT)
        service.becomes("NRestarts", restarts)
        service.becomes("ActiveState", "active")
        assert service.logs_in()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_who_connects_while_it_restarts_waits(service: Service) -> None:
    """With the socket unit of the page. `listen` means nothing then."""
    manager = service.manager
    page = (ROOT / "docs/service.md").read_text("utf-8")
    unit = re.search(r"    # (/etc/systemd/system/\S+socket)\n((?:    .*\n)+)", page)
    assert unit is not None
    manager.write(unit[1], re.sub("^    ", "", unit[2], flags=re.MULTILINE))
    by_the_page(service)
    service.ctl("stop", UNIT)
    service.ctl("enable", "--now", "binlog-server.socket")
    assert not service.is_active
    assert service.logs_in()  # this starts it
    service.becomes("ActiveState", "active")
    first = service.pid
    service.ctl("restart", "--no-block", UNIT)
    service.changes("MainPID", first)
    assert service.logs_in()
    service.becomes("ActiveState", "active")
    first = service.pid
    service.ctl("kill", "--kill-whom=main", "--signal=USR2", UNIT)
    service.changes("MainPID", first)
    assert service.logs_in()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_package(service: Service, tmp_path: Path) -> None:
    """As docs/install.md installs it: started, upgraded without a stop, taken away."""
    manager = service.manager
    built, installs = commands(
        next(b.text for b in blocks("docs/install.md") if "deploy/make-deb.sh" in b.text)
    )
    subprocess.run([*built.split()[:1], str(tmp_path)], cwd=ROOT, check=True)
    (package,) = tmp_path.glob("*.deb")
    manager.path("/root/dist").mkdir()
    shutil.copy(package, manager.path("/root/dist"))
    install = f"cd /root && DEBIAN_FRONTEND=noninteractive {installs}"
    manager.run("sh", "-c", install)
    assert not service.is_active
    configuration = manager.path("/etc/binlog-server/server.toml")
    assert manager.run("stat", "--format", "%G %a", "/etc/binlog-server/server.toml").split() == [
        "binlog-server",
        "640",
    ]
    configuration.write_text(CONFIGURATION)
    service.ctl("enable", "--now", UNIT)
    assert service.logs_in()
    first = service.pid
    manager.run("sh", "-c", install.replace("apt install", "apt install --reinstall"))
    service.changes("MainPID", first)
    assert service.logs_in()
    assert configuration.read_text() == CONFIGURATION
    assert manager.run("man", "--where", "binlog-server-user-add").strip()
    assert "binlog-spark" in manager.run("binlog-spark", "--version")
    manager.run("dpkg", "--remove", "binlog-server")
    assert manager.tried("systemctl", "cat", UNIT).returncode
    assert manager.shows(UNIT, "LoadState") == "not-found"
    assert not manager.path(HOME).exists()
    assert list(manager.path("/var/lib/private/binlog-server").glob("*.ibb"))
