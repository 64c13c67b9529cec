"""The `mariadb` command line client."""

from __future__ import annotations

import os
import pty
import re
import subprocess

import pytest

from tests.integration.clients.programs import TIMEOUT_S, Programs, Relay, server_version


@pytest.mark.proves("batch", "source", client="mariadb", versions=("10.11", "11.8"))
def test_batch(relay: Relay) -> None:
    gtids = relay.write()
    run = relay.programs.run
    assert (
        run("mariadb", "-NBe", "SELECT @@gtid_binlog_pos; SELECT 1, NULL")
        == f"{gtids[-1]}\n1\tNULL\n"
    )
    (line,) = run("mariadb", "-NB", given="SHOW MASTER STATUS;\n").splitlines()
    assert re.fullmatch(rf"binlog-000000\.ibb\t\d+\t\t\t{gtids[-1]}", line)
    vertical = run("mariadb", "-e", r"SHOW MASTER STATUS\G")
    assert "            File: binlog-000000.ibb" in vertical.splitlines()
    assert f" Gtid_Binlog_Pos: {gtids[-1]}" in vertical.splitlines()
    table = run("mariadb", "-t", "-e", "SHOW BINARY LOGS")
    assert "| Log_name          | File_size |" in table.splitlines()
    # It ends at the first error, unless told to go on.
    said = relay.programs.fail("mariadb", "-B", given="SELECT @@nope;\nSELECT 'not reached';\n")
    assert "ERROR 1193 (HY000) at line 1: Unknown system variable 'nope'" in said
    assert "not reached" not in said
    assert "reached" in run("mariadb", "-Bf", given="SELECT * FROM d.t;\nSELECT 'reached';\n")
    script = relay.programs.directory / "script.sql"
    script.write_text(
        "-- what a DBA keeps in a file\n"
        "SET @here = 'it works', @there := NULL;\n"
        "DELIMITER //\n"
        "SELECT @here, @there//\n"
    )
    said = run("mariadb", "-NB", "-e", f"source {script}")
    assert said == "it works\tNULL\n"


@pytest.mark.proves("TLS", "without TLS", client="mariadb", versions=("10.11", "11.8"))
def test_status_with_and_without_tls(relay: Relay, version: str) -> None:
    def status(*options: str) -> dict[str, str]:
        lines = relay.programs.run("mariadb", *options, "-e", "status").splitlines()
        return dict(line.split(":\t", 1) for line in lines if ":\t" in line)

    for option in ("--ssl", "--skip-ssl"):
        said = status(option)
        assert said["Server version"].split()[-2:] == [server_version(version), "binlog-server"]
        assert said["Server characterset"].strip() == "utf8mb4"
        assert said["TCP port"].strip() == str(relay.server.port)
        assert "sec" in said["Uptime"]
        assert said["SSL"].strip().startswith("Cipher" if option == "--ssl" else "Not in use")


@pytest.mark.proves("interactive", client="mariadb", versions=("10.11", "11.8"))
def test_interactive(relay: Relay) -> None:
    """On a terminal: it asks for @@version_comment, for databases and tables to complete names, and prompts."""
    gtids = relay.write()
    said = _on_a_terminal(
        relay.programs,
        ["status", "use d", r"SHOW MASTER STATUS\G", "SELECT DATABASE();", r"\q"],
    )
    assert "Welcome to the MariaDB monitor." in said
    assert "binlog-server" in said
    assert "Uptime:" in said
    assert f"Gtid_Binlog_Pos: {gtids[-1]}" in said
    assert "MariaDB [d]> " in said
    assert "| d          |" in said
    assert "ERROR" not in said
    assert said.rstrip().endswith("Bye")


def _on_a_terminal(programs: Programs, lines: list[str]) -> str:
    """What the client shows when somebody types these lines."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb"}
    child = subprocess.Popen(
        programs.argv("mariadb"), stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    os.write(ours, "".join(f"{line}\n" for line in lines).encode())
    said = b""
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:
        pass  # EIO: it has closed the terminal
    finally:
        os.close(ours)
        assert child.wait(TIMEOUT_S) == 0
    return said.decode().replace("\r\n", "\n")
