"""A MariaDB that is on this machine, and the empty data directory made from it."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from binlog_protocol.dataclass import dataclass

from binlog_server.testing import rundir

# Small files and little memory. At first start these decide the layout of the data directory, so
# they are the same in the template and in every start on a copy of it.
LAYOUT = (
    "--innodb-log-file-size=4M",
    "--innodb-undo-tablespaces=0",
    "--innodb-autoextend-increment=1",
    "--innodb-buffer-pool-size=16M",
)


def homes() -> list[Path]:
    """Where setup.sh puts what it makes; the first that has a thing wins."""
    if given := os.environ.get("BINLOG_TEST_HOME"):
        return [Path(given)]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [Path("/var/cache/binlog-test"), cache / "binlog-test"]


@dataclass(frozen=True)
class Install:
    root: Path
    """/ for the system's, or a tree that holds the unpacked packages."""
    loader: tuple[str, ...] = ()
    """A tree of another distribution runs by its own dynamic linker and libraries."""
    extras: Path | None = None
    """Plugins and client programs beside the system's."""

    @staticmethod
    def system() -> Install | None:
        if not Path("/usr/sbin/mariadbd").exists():
            return None
        extras = next((h / "system" for h in homes() if (h / "system").is_dir()), None)
        return Install(Path("/"), extras=extras)

    @staticmethod
    def tree(root: Path) -> Install | None:
        # A tree of bookworm has /lib beside /usr/lib. The linker by its real place: what is in /lib64
        # is a link to outside the tree.
        libraries = [p for lib in ("usr/lib", "lib") for p in root.glob(f"{lib}/*-linux-gnu*")]
        linkers = [p for folder in libraries for p in folder.glob("ld-linux-*.so.*")]
        if not linkers or not (root / "usr/sbin/mariadbd").exists():
            return None
        return Install(root, (str(linkers[0]), "--library-path", ":".join(map(str, libraries))))

    def program(self, name: str) -> list[str]:
        """How to run `mariadbd`, `mariadb-backup`, `mariadb-binlog`, ... of this version."""
        for root in filter(None, (self.root, self.extras)):
            for folder in ("usr/sbin", "usr/bin"):
                if (root / folder / name).exists():
                    return [*self.loader, str(root / folder / name)]
        raise FileNotFoundError(f"{name} of MariaDB {self.version} in {self.root}")

    @property
    def mariadbd(self) -> list[str]:
        """mariadbd, with the options that say where its own files are."""
        argv = [*self.program("mariadbd"), "--no-defaults"]
        if self.loader:
            argv += [
                f"--lc-messages-dir={self._share}",
                f"--character-sets-dir={self._share / 'charsets'}",
            ]
        plugins = (self.extras or self.root) / "usr/lib/mysql/plugin"
        if plugins.is_dir():
            argv.append(f"--plugin-dir={plugins}")
        if os.getuid() == 0:
            argv.append("--user=root")
        return argv

    @functools.cached_property
    def full_version(self) -> str:
        """Such as 10.11.19."""
        argv = [*self.program("mariadbd"), "--no-defaults", "--version"]
        text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        return text.split("Ver ")[1].split("-")[0]

    @property
    def version(self) -> str:
        """Such as 10.11."""
        return ".".join(self.full_version.split(".")[:2])

    @property
    def _share(self) -> Path:
        # Debian moved the files from one to the other; both folders may be there.
        for name in ("mariadb", "mysql"):
            folder = self.root / "usr/share" / name
            if any(folder.glob("*_system_tables.sql")):
                return folder
        raise FileNotFoundError(f"no *_system_tables.sql below {self.root / 'usr/share'}")

    def template(self) -> Path:
        """The empty data directory: made once per version and layout, then only copied.

        By the server's own bootstrap, without the help tables and the sys schema (0.2 s instead of
        a second and more). root may log in from anywhere without a password.
        """
        key = hashlib.sha256(repr((self, self.full_version, LAYOUT)).encode()).hexdigest()[:12]
        templates = rundir.base() / "templates"
        final = templates / f"{self.full_version}-{key}"
        if final.exists():
            return final
        templates.mkdir(exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=templates, prefix="new-"))
        (new / "mysql").mkdir()
        bootstrap = [
            *self.mariadbd,
            "--bootstrap",
            f"--datadir={new}",
            "--skip-name-resolve",
            "--max-allowed-packet=16M",
            "--net-buffer-length=16K",
            "--log-warnings=0",
            *LAYOUT,
        ]
        done = subprocess.run(
            bootstrap, input=self._bootstrap_sql(), text=True, capture_output=True, check=False
        )
        if done.returncode:
            shutil.rmtree(new)
            raise RuntimeError(f"bootstrap of {self.root}: {done.stderr[-2000:]}")
        try:
            new.rename(final)  # atomic: another worker may have been at it too
        except OSError:
            shutil.rmtree(new)
        return final

    def _bootstrap_sql(self) -> str:
        script = ["use mysql;\nSET @auth_root_socket=NULL;\n"]
        for name in ("system_tables", "performance_tables", "system_tables_data"):
            # mysql_*.sql up to 10.11, mariadb_*.sql later
            script += [p.read_text() for p in self._share.glob(f"m*_{name}.sql")][:1]
        script.append(
            "\nFLUSH PRIVILEGES;\n"
            "CREATE USER IF NOT EXISTS root@'%' IDENTIFIED BY '';\n"
            "GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n"
        )
        return "".join(script)
