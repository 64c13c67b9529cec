"""The plugin in a run of pytest: logs of failed tests, the order of the end, a MariaDB that is not here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from binlog_server.testing import containers, found
from binlog_server.testing.found import NoMariaDB
from binlog_server.testing.install import Install

PLUGINS = ("-p", "binlog_server.pytest_plugin", "-p", "no:asyncio")
FAILING = """
class Server:
    def __init__(self, name):
        self.name = name
    def log(self):
        return "".join(f"{self.name} line {n}\\n" for n in range(100))
    def discard(self):
        ended.append(self.name)

ended = []

def test_fails(_binlog_servers):
    _binlog_servers += [Server("master"), Server("replica")]
    raise ValueError

def test_passes(_binlog_servers):
    _binlog_servers.append(Server("other"))

def test_the_last_one_ended_first():
    assert ended == ["replica", "master", "other"]
"""


def test_logs_of_a_failed_test_are_in_its_report(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BINLOG_TEST_LOGS", str(pytester.path / "logs"))
    pytester.makepyfile(FAILING)
    ran = pytester.runpytest_inprocess(*PLUGINS)
    ran.assert_outcomes(passed=2, failed=1)
    ran.stdout.fnmatch_lines(["*log of master (whole: */logs/*test_fails/master.log)*"])
    shown = ran.stdout.str()
    assert "replica line 99" in shown
    assert "master line 40" in shown
    assert "master line 39" not in shown
    assert "other line" not in shown
    (whole,) = (pytester.path / "logs").glob("*test_fails/master.log")
    assert "master line 0\n" in whole.read_text()


def test_a_mariadb_that_is_not_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pytester: pytest.Pytester
) -> None:
    monkeypatch.setenv("BINLOG_TEST_HOME", str(tmp_path))
    monkeypatch.setattr(Install, "system", lambda: None)
    monkeypatch.setattr(containers, "why_no_image", lambda name: f"no image {name}")
    with pytest.raises(NoMariaDB, match=r"no MariaDB 1\.2 here: .* no image mariadb:1\.2"):
        found.new_mariadb(version="1.2")
    pytester.makepyfile(
        "def test(make_mariadb_replica):\n    make_mariadb_replica(version='1.2')\n"
    )
    ran = pytester.runpytest_inprocess(*PLUGINS, "-rs")
    ran.assert_outcomes(skipped=1)
    ran.stdout.fnmatch_lines(["*no MariaDB 1.2 here*"])


def test_each_name_is_its_own_thing() -> None:
    """No module of the package is called like something that it gives: an import would hide that."""
    import binlog_server.testing

    for name in binlog_server.testing.__all__:
        assert callable(getattr(binlog_server.testing, name)), name
        assert find_spec(f"binlog_server.testing.{name}") is None, name
