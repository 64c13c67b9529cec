"""No command and no function makes a folder here of a URL: whatever takes a path refuses `scheme://`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import binlog_pipeline.cli
import pytest
from binlog_pipeline.cli.package import make_zip
from binlog_pipeline.errors import BadOption
from binlog_pipeline.jobs.archive import ArchiveSettings, archive
from binlog_pipeline.jobs.export import export
from binlog_pipeline.jobs.lag import position_of
from binlog_pipeline.jobs.replay import replay
from binlog_pipeline.jobs.state import OPS, keep_state
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.seed_writing import write_tables
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.tables.buckets import read_state
from binlog_pipeline.tables.delta import read_delta
from binlog_pipeline.tables.sinks import open_sink
from binlog_pipeline.targets import SINKS
from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive.manifest import MANIFEST_NAME
from binlog_storage.disk.local_path import NotLocal
from binlog_storage.errors import StorageError

import binlog_server.cli
from binlog_server.settings import config as configuration
from tests.pipeline.stores import make_store
from tests.storage.groups import simple

URL = "s3://bucket/x"
UNKNOWN = "webhdfs://bucket/x"
"""Where {A} stands an archive may be, which `s3://` would name."""
SAID = re.compile(
    r"not supported yet, only (folders and files|object stores \(s3://, gs://, az://, hdfs://\) and folders) of this "
    r"machine"
    r"|s3://bucket/x is an archive, no store: `binlog-spark verify` checks it"
)
PIPELINE = (
    "archive STORE {A}", "export STORE {}", "state STORE {A} --table d.t", "state STORE t --table d.t --copy {}",
    "state STORE {A} --table d.t --sink delta", "state STORE {A} --table d.t --sink changes",
    "state {A} t --table d.t", "stats {A}", "stats STORE --plot {}.png", "replay {A} --ibb x", "replay x --ibb {}",
    "stream --from STORE --to {A} --table d.t --checkpoint x",
    "stream --from {A} --to x --table d.t --checkpoint x", "schema STORE --seed-from-ddl {}", "verify {A}",
    "lag {A} 0-1-1", "lag STORE {A}", "package {}", "export STORE x --option schemaSeed={}",
    "stats mariadb://u@h:1 --password-file {}", "stats mariadb://u@h:1 --tls-ca {}",
)  # fmt: skip
SERVER = (
    "serve --directory {}", "serve --directory x --archive {A}", "serve --config {}", "ls {}", "verify {}", "events {}",
    "events x --local-load {}", "import --directory {} STORE",
    "import --directory x {A}", "import --directory x --index {}",
    "seed --directory {} --gtid-slave-pos 0-1-1", "seed --directory x --from-dump {}",
    "seed --directory x --from-backup {}", "prepare {}", "prepare STORE --incremental-dir {}",
    "backup --server mariadb://u@h:1 --target {}", "backup --server mariadb://u@h --target x --incremental-basedir {}",
    "backup --server mariadb://u@h:1 --target x --password-file {}", "backup --server m --target x --config {}",
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Outside of the folder that we are in, which is empty."""
    made = make_store(tmp_path / "store", simple(3))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return str(made)


def refused(main: Callable[[list[str]], int], command: str, store: str, capsys: Any) -> None:
    words = [
        store if word == "STORE" else word.replace("{}", URL).replace("{A}", UNKNOWN)
        for word in command.split()
    ]
    try:
        code = main(words)
    except SystemExit as error:  # of argparse
        code = int(error.code or 0)
    said = capsys.readouterr().err
    assert code != 0, said
    assert SAID.search(said), said
    assert not list(Path().iterdir()), command


@pytest.mark.parametrize("command", PIPELINE)
def test_commands_of_the_pipeline(
    command: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(binlog_pipeline.cli.main, command, store, capsys)


@pytest.mark.parametrize("command", SERVER)
def test_commands_of_the_server(
    command: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(binlog_server.cli.main, command, store, capsys)


@pytest.mark.parametrize(
    "name",
    [
        *("binlog_archive_directory", "master_info_key_file"),
        *("ssl_cert", "ssl_key", "ssl_ca", "metrics_ssl_ca"),
    ],
)
def test_options_of_the_server(name: str) -> None:
    url = UNKNOWN if name == "binlog_archive_directory" else URL
    with pytest.raises(configuration.ConfigError, match=rf"^{name}: {url}: .* not supported"):
        configuration.load(None, {"binlog_directory": "x", name: url})
    made = (
        configuration.load(None, {"binlog_directory": "x", name: "file:///srv/a", "ssl": False})
        if (name in ("binlog_archive_directory", "master_info_key_file"))
        else None
    )
    assert made is None or getattr(made, name) == "/srv/a"


def test_functions(store: str) -> None:
    """Their `Path` has lost a slash."""
    here = Path(URL)
    options = SourceOptions.parse({"path": store, "view": "changes", "table": "d.t", "ops": OPS})
    calls: list[Callable[[], Any]] = [
        lambda: archive(open_source(options), here, ArchiveSettings()),
        lambda: export(SourceOptions.parse({"path": store}), here),
        lambda: keep_state(options, here, keys=["id"]),
        lambda: position_of(UNKNOWN),
        lambda: replay(here, Path("x")),
        lambda: make_zip(here),
        lambda: write_tables(here, []),
        lambda: read_state(here),
        lambda: read_delta(here),
    ]
    for call in calls:
        with pytest.raises((NotLocal, BadOption)):
            call()
    for sink in SINKS:
        with (
            pytest.raises((StorageError, BadOption)),
            open_sink(sink, here, "d.t", ["id"], SlavePosition()),
        ):
            pass
    for name in ("path", "paths", "schemaSeed", "passwordFile", "tlsCa", "tlsCert", "tlsKey"):
        with pytest.raises(BadOption, match="not supported yet"):
            SourceOptions.parse({name: UNKNOWN if name.startswith("path") else URL})
    assert not list(Path().iterdir())


def test_archives_may_be_elsewhere() -> None:
    """As they are, and without keys, which would be in logs and in the list of processes."""
    assert SourceOptions.parse({"path": URL}).path == URL
    assert (
        configuration.load(
            None, {"binlog_directory": "x", "binlog_archive_directory": URL + "/"}
        ).binlog_archive_directory
        == URL
    )
    with pytest.raises(BadOption, match="variables of the environment") as error:
        SourceOptions.parse({"path": "s3://key:secret@bucket/x"})
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("written", ["s3:/x", "gs:/bucket/x", "S3A:/b"])
def test_a_url_with_one_slash(written: str) -> None:
    """Not a word of local folders: an archive may be in an object store."""
    scheme = written.partition(":")[0]
    for name in ("binlog_archive_url", "binlog_archive_directory"):
        said = f"^{name}: {written}: an object store is written as {scheme}://BUCKET/FOLDER$"
        with pytest.raises(configuration.ConfigError, match=said):
            configuration.load(None, {"binlog_directory": "x", name: written})


@pytest.mark.parametrize("command", ["verify", "ls", "events"])
def test_an_archive_is_no_store(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / MANIFEST_NAME).write_text("{}")
    with pytest.raises(SystemExit):
        binlog_server.cli.main([command, str(tmp_path)])
    assert f"{tmp_path} is an archive, no store: `binlog-spark verify`" in capsys.readouterr().err


def test_a_file_url_is_a_path(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = Path("out").absolute()
    assert (
        binlog_pipeline.cli.main(
            ["archive", f"file://{store}", f"file://{target}", "--include-tail"]
        )
        == 0
    )
    assert (target / "_archive.json").exists()


def test_no_argument_of_a_command_is_a_bare_path() -> None:
    root = Path(__file__).parent.parent
    for path in [*(root / "pipeline").rglob("*.py"), *(root / "binlog_server").rglob("*.py")]:
        text = path.read_text("utf-8")
        # Few modules say it at all, and in a comment it is no argument.
        for node in ast.walk(ast.parse(text)) if re.search(r"\btype\s*=\s*Path\b", text) else ():
            if isinstance(node, ast.keyword) and node.arg == "type":
                assert ast.unparse(node.value) != "Path", f"{path}:{node.value.lineno}"
