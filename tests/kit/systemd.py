"""A systemd of a test's own, with units that it really runs. Needs root.

It is process 1 of namespaces. Its root shows the files of this machine, and keeps what is changed there for itself, in
memory; its network is a loopback alone. All of it goes with the process.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from binlog_server.testing.waiting import until
from tests.kit.programs import program

ROOT = Path(__file__).parent.parent.parent
SYSTEMD = Path("/lib/systemd/systemd")
HOME = Path("/opt/binlog-server")
PACKAGES = (".", "protocol", "storage", "pipeline")
_NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup")
_PROGRAM = "import sys\nfrom binlog_server.cli import main\nsys.exit(main())\n"

_START = """
set -e
top=$1 checkout=$2 packages=$3 python=$4
mount -t tmpfs -o mode=755 tmpfs "$top"
mkdir "$top/changes" "$top/work" "$top/root"
mount -t overlay -o "lowerdir=/,upperdir=$top/changes,workdir=$top/work" overlay "$top/root"
cd "$top/root"
mkdir -p opt/checkout opt/packages opt/python old etc/systemd/journald.conf.d
mount --bind "$checkout" opt/checkout
mount --bind "$packages" opt/packages
mount --bind "$python" opt/python
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm  # where systemd removes files of users that it forgets
: >etc/machine-id
printf '[Unit]\\nWants=systemd-journald.service\\n' >etc/systemd/system/tests.target
printf '[Journal]\\nReadKMsg=no\\nStorage=volatile\\n' >etc/systemd/journald.conf.d/tests.conf
ln -sf /dev/null etc/systemd/system/network-online.target
pivot_root . old
umount -l /old
exec env -i container=tests PATH=/usr/sbin:/usr/bin:/sbin:/bin "$5" --system --unit=tests.target --show-status=no
"""


class Systemd:
    """Runs from its making up to `close`."""

    def __init__(self, folder: Path) -> None:
        groups = _cgroups()
        assert groups is not None, "see `require`"
        self._groups = groups / f"binlog-test-{os.getpid()}-{folder.name}"
        self._groups.mkdir()
        (folder / "root").mkdir()
        self._said = folder / "systemd.log"
        packages, python = sysconfig.get_path("purelib"), sys.base_prefix
        joins = f'echo $$ >"{self._groups}/cgroup.procs"; exec unshare --fork "$@"'
        starts = [*_NAMESPACES, "bash", "-c", _START, "systemd"]
        given = [folder / "root", ROOT, packages, python, SYSTEMD]
        argv = ["bash", "-c", joins, "unshare", *starts, *given]
        with self._said.open("wb") as log:
            self._process = subprocess.Popen([*map(str, argv)], stdout=log, stderr=log)
        self._pid = 0
        try:
            until(self._runs, "systemd takes commands", timeout=60)
        except BaseException:
            self.close()
            print(self._said.read_text("utf-8", "replace"))
            raise

    def _runs(self) -> bool:
        pid = self._process.pid
        assert self._process.poll() is None, self._said.read_text("utf-8", "replace")
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not found:
            return False
        self._pid = int(found[0])
        if Path(f"/proc/{self._pid}/comm").read_text() != "systemd\n":
            return False
        return self.tried("systemctl", "is-active", "tests.target").returncode == 0

    def tried(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """A command there, as root."""
        inside = ["nsenter", "--target", str(self._pid), *_NAMESPACES]
        return subprocess.run([*inside, *argv], capture_output=True, text=True, check=False)

    def run(self, *argv: str) -> str:
        """What a command prints there. It must succeed."""
        done = self.tried(*argv)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def shows(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "--property", name, "--value", unit).strip()

    def path(self, inside: str | Path) -> Path:
        """Where this process finds a file of it."""
        return Path(f"/proc/{self._pid}/root") / str(inside).lstrip("/")

    def close(self) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()
        events = self._groups / "cgroup.events"
        until(lambda: "populated 0" in events.read_text(), "its processes are gone")
        for group in sorted(self._groups.rglob("*/"), reverse=True):
            group.rmdir()
        self._groups.rmdir()

    def install_checkout(self) -> None:
        """The environment /opt/binlog-server, as `pip install .` makes it, but of the files of this checkout.

        By links: what is installed here is 2 GB, and pip may ask nobody. The unit may not look below /root, where this
        Python may be: it has another place there.
        """
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        site = self.path(HOME / f"lib/{version}/site-packages")
        site.mkdir(parents=True)
        ours = [str(Path("/opt/checkout") / name) for name in PACKAGES]
        (site / "checkout.pth").write_text("\n".join([*ours, "/opt/packages", ""]))
        self.path(HOME / "pyvenv.cfg").write_text("home = /opt/python/bin\n")
        programs = self.path(HOME / "bin")
        programs.mkdir()
        (programs / "python").symlink_to(f"/opt/python/bin/{version}")
        server = programs / "binlog-server"
        server.write_text(f"#!{HOME}/bin/python\n{_PROGRAM}")
        server.chmod(0o755)
        self.write(
            "/etc/systemd/system/binlog-server.service.d/python.conf",
            "[Service]\nEnvironment=LD_LIBRARY_PATH=/opt/python/lib\n",
        )
        # The service may write nothing there: each of its starts would compile all modules.
        start = str(HOME / "bin/binlog-server")
        self.run(
            "env",
            "LD_LIBRARY_PATH=/opt/python/lib",
            start,
            "serve",
            "--check-config",
            "--directory=/none",
        )

    def write(self, inside: str | Path, text: str) -> None:
        """A file there."""
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def require() -> None:
    """Skips the test where no systemd can be run so; in CI only where the machine does not allow it at all."""
    if os.geteuid() != 0:
        pytest.skip("namespaces of its own: root makes them")
    if _cgroups() is None:
        pytest.skip("there are no control groups of version 2")
    allowed = subprocess.run(["unshare", *_NAMESPACES, "true"], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip(f"no namespaces here: {allowed.stderr.decode().strip()}")
    if not SYSTEMD.exists():
        program("systemd")


def _cgroups() -> Path | None:
    """Where control groups of version 2 are mounted."""
    found = re.search(r"^\S+ (\S+) cgroup2 ", Path("/proc/self/mounts").read_text(), re.MULTILINE)
    return Path(found[1]) if found else None
