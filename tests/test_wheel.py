"""A wheel works beside folders of the user that are called `protocol`, `storage` and `pipeline`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from binlog_server.testing.sql_server import Credentials
from tests.kit.server import BinlogServer

ROOT = Path(__file__).parent.parent
PACKAGES = {"binlog_server", "binlog_protocol", "binlog_storage", "binlog_pipeline"}
OF_THE_USER = ("protocol", "storage", "pipeline", "tests", "benchmarks")
TROUBLE = "raise ImportError('this is a folder of the user')\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", f"--wheel-dir={folder}", str(ROOT)], check=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a fresh environment, as docs/consumer-in-ci.md and docs/pytest.md install them.

    Other people's packages are those of this one: what `[testing]` names is there.
    """
    folder = tmp_path_factory.mktemp("fresh") / "env"
    venv.create(folder, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        f"--python={folder}",
    ]
    subprocess.run([*pip, "install", "--no-deps", str(wheel)], check=True)
    # The .pth files of that folder, with our own source in them, are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user stands, and what Python is told to look at first."""
    for name in OF_THE_USER:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(TROUBLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # of the run that this one is in
    return tmp_path


def run(program: Path, *arguments: str | Path) -> str:
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_our_packages_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert {n.partition("/")[0] for n in names if ".dist-info/" not in n} == PACKAGES
    assert all(f"{package}/py.typed" in names for package in PACKAGES)
    assert not [name for name in names if name.endswith((".c", ".h"))]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_pure_wheel(tmp_path: Path) -> None:
    """Without what C makes; and what C has made of the checkout stays, which runs servers and tests."""
    built = sorted(ROOT.glob("*/*/*/*.abi3.so"))
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", f"-w{tmp_path}", str(ROOT)],
        check=True,
        env={**os.environ, "BINLOG_SERVER_PURE": "1"},
    )
    (made,) = tmp_path.glob("*-py3-none-any.whl")
    with zipfile.ZipFile(made) as opened:
        assert not [name for name in opened.namelist() if name.endswith(".so")]
    assert sorted(ROOT.glob("*/*/*/*.abi3.so")) == built


def test_the_fresh_environment_has_ours_of_the_wheel(programs: Path, folder: Path) -> None:
    text = "import {0}; print({0}.__file__)"
    for package in sorted(PACKAGES):
        found = Path(run(programs / "python", "-c", text.format(package)).strip())
        assert found.is_relative_to(programs.parent), found


@pytest.mark.timeout(120)
def test_programs_beside_folders_of_such_names(programs: Path, folder: Path) -> None:
    class Installed(BinlogServer):
        command = (str(programs / "binlog-server"),)

    account = Credentials()
    password = folder / "password"
    password.write_text(account.password)
    password.chmod(0o600)
    server = Installed(users={account.user: {"password": account.password, "grants": ["ALL"]}})
    server.start()
    try:
        server.q("CREATE TABLE d.t (a INT)")
        dumped = run(
            programs / "binlog-spark",
            "stats",
            f"mariadb://{account.user}@{server.host}:{server.port}",
            f"--password-file={password}",
        )
        assert "CREATE TABLE d.t" in run(programs / "binlog-server", "events", server.directory)
        read = run(programs / "binlog-spark", "stats", server.directory)
        run(programs / "binlog-spark", "archive", server.directory, "parts", "--include-tail")
    finally:
        server.discard()
    assert list((folder / "parts").glob("*"))
    assert dumped
    assert read


@pytest.mark.timeout(120)
def test_demo(programs: Path, folder: Path) -> None:
    """What a reader of README.md does first; with a real replica, as one is installed where these tests run."""
    told = json.loads(run(programs / "binlog-server", "demo", "--seconds", "0.5", "--json"))
    assert told["complete"]
    assert told["published"] == told["received"] == told["applied"] > 0


@pytest.mark.parametrize(("target", "extras"), [("demo", ""), ("venv", "dev"), ("lint", "dev")])
def test_a_demo_installs_the_server_alone(target: str, extras: str, tmp_path: Path) -> None:
    make = ["make", "--dry-run", f"VENV={tmp_path}", target]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f".ci/venv {tmp_path} '{extras}'" in done.stdout


CHECKS = """
import sys

def test_a_master(binlog_master, make_binlog_master):
    for name in ("binlog_server", "binlog_storage"):
        assert sys.modules[name].__file__.startswith(sys.prefix), name
    assert binlog_master.sql("SELECT 1 AS x") == [{"x": 1}]
    other = make_binlog_master(process=True)
    other.sql("CREATE DATABASE shop")
    assert other.gtid_binlog_pos == "0-1-1"
"""


@pytest.mark.timeout(120)
def test_fixtures_beside_folders_of_such_names(programs: Path, folder: Path) -> None:
    """pytest finds them by itself, where nothing names them."""
    (folder / "checks").mkdir()
    (folder / "checks" / "test_mine.py").write_text(CHECKS)
    shown = run(programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "checks")
    assert "1 passed" in shown
