"""Options of the environment: what a container is given by variables and files of secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from binlog_server.settings.config import Config, ConfigError, load
from binlog_server.upstreams.master_info import MasterInfo

DIRECTORY = {"binlog_directory": "/d"}


def of(**variables: str) -> Config:
    return load(None, DIRECTORY, {f"BINLOG_SERVER_{key}": text for key, text in variables.items()})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("server_id", "7", 7),
        ("max_binlog_size", "256M", 256 << 20),
        ("expire_logs_days", "1.5", 1.5),
        ("read_only", "true", True),
        ("read_only", "OFF", False),
        ("ssl", "0", False),
        ("report_host", "1", "1"),
        ("metrics_token", "a token of many characters", "a token of many characters"),
        ("upstream", "mariadb://u:p@db", {"": MasterInfo.from_url("mariadb://u:p@db")}),
        ("users", 'repl = "secret"\nother = {password = "x"}', None),
        ("users", '{repl = "secret"}', {"repl": "secret"}),
    ],
)
def test_kinds_of_values(name: str, text: str, value: Any) -> None:
    found = getattr(of(**{name.upper(): text}), name)
    if value is None:
        assert set(found) == {"repl", "other"}
    else:
        assert found == value


def test_an_upstream_as_a_table(tmp_path: Path) -> None:
    table = f'{{host = "db", user = "u", password_file = "{tmp_path}/secret"}}'
    assert of(UPSTREAM=table).upstream[""].password.file == f"{tmp_path}/secret"


def test_the_environment_is_between_the_file_and_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('server_id = 1\nreport_host = "file"\nlisten = "file:1"\nmax_connections = 17')
    given = {
        "BINLOG_SERVER_CONFIG": str(file),
        "BINLOG_SERVER_SERVER_ID": "2",
        "BINLOG_SERVER_REPORT_HOST": "environment",
        "BINLOG_SERVER_LISTEN": ":2",
        "BINLOG_SERVER_BINLOG_DIRECTORY": "/e",
        "PATH": "/bin",
    }
    config = load(None, {"server_id": 3, "listen": None}, given)
    assert config.binlog_directory == Path("/e")
    assert (config.server_id, config.report_host, config.listen_port) == (3, "environment", 2)
    assert config.max_connections == 17
    assert load(file, DIRECTORY).report_host == "file"  # nobody has asked for the environment


def test_a_secret_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token of many characters\n")
    (tmp_path / "users").write_text(f'repl = {{password_file = "{tmp_path}/password"}}\n')
    (tmp_path / "password").write_text("secret\n")
    config = of(METRICS_TOKEN_FILE=f"{tmp_path}/token", USERS_FILE=f"{tmp_path}/users")
    assert config.metrics_token == "a token of many characters"
    account = config.users["repl"]
    assert not isinstance(account, str)
    assert account.password == "secret"


def test_an_option_whose_name_ends_with_file(tmp_path: Path) -> None:
    (tmp_path / "path").write_text("/keys/of-a-file\n")
    assert of(MASTER_INFO_KEY_FILE="/keys/k").master_info_key_file == "/keys/k"
    path = str(tmp_path / "path")
    assert of(MASTER_INFO_KEY_FILE_FILE=path).master_info_key_file == "/keys/of-a-file"


def test_variables_of_others_are_left_alone() -> None:
    """Those of Kubernetes, where a service is called binlog-server; and ours that are no options."""
    assert of(
        SERVICE_HOST="10.0.0.1",
        SERVICE_PORT="3306",
        SERVICE_PORT_METRICS="9104",
        PORT="tcp://10.0.0.1:3306",
        PORT_3306_TCP_ADDR="10.0.0.1",
        PURE="1",
        HAND_OVER="3",
    ) == load(None, DIRECTORY)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"SERVER_ID": "x"}, "BINLOG_SERVER_SERVER_ID: 'x' is no whole number"),
        ({"SERVER_ID": "-1"}, "BINLOG_SERVER_SERVER_ID: '-1' is no whole number"),
        ({"SERVER_ID": "0"}, "server_id: 0 is not between"),
        ({"READ_ONLY": "yes"}, "BINLOG_SERVER_READ_ONLY: 'yes' is neither true nor false"),
        ({"EXPIRE_LOGS_DAYS": "1e3"}, "BINLOG_SERVER_EXPIRE_LOGS_DAYS: '1e3' is no number"),
        ({"SERVER_IDD": "1"}, "in BINLOG_SERVER_SERVER_IDD: did you mean 'server_id'?"),
        ({"UPSTREAM": "db:3306"}, "BINLOG_SERVER_UPSTREAM: it is neither a URL nor a table"),
        ({"UPSTREAM": "mariadb://db"}, "in BINLOG_SERVER_UPSTREAM"),
        ({"USERS": "repl"}, "BINLOG_SERVER_USERS: it is neither"),
        ({"USERS": "repl = 5"}, "in BINLOG_SERVER_USERS"),
        ({"USERS": 'repl = {password_file = "/nowhere"}'}, "users: repl: "),
        ({"USERS": 'repl = {password_file = "/dev/null"}'}, "users: repl: "),
        ({"USERS": 'r = {password = "x", password_file = "/x"}'}, "users: write a table"),
        ({"LISTEN": "nonsense"}, "listen: 'nonsense' is not HOST:PORT"),
        ({"LISTEN_FILE": "/nowhere"}, "BINLOG_SERVER_LISTEN_FILE: cannot read /nowhere"),
        (
            {"METRICS_TOKEN": "x" * 16, "METRICS_TOKEN_FILE": "/dev/null"},
            "BINLOG_SERVER_METRICS_TOKEN_FILE",
        ),
    ],
)
def test_what_is_refused(variables: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        of(**variables)
    assert text in str(refused.value)


def test_a_secret_that_is_no_table_is_not_quoted() -> None:
    with pytest.raises(ConfigError) as refused:
        of(USERS='repl = "topsecret')
    assert "topsecret" not in str(refused.value)


def test_an_empty_password_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="there is no password in"):
        of(USERS=f'{{repl = {{password_file = "{tmp_path}/empty"}}}}')
