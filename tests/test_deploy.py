"""What packages have beside the programs: completion and manual pages, made of the parsers (deploy/texts.py)."""

from __future__ import annotations

import argparse
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlog_server.settings.config import load
from deploy import texts

ROOT = Path(__file__).parent.parent
ASKED = """
source "$0"
COMP_WORDS=(binlog-server "$@") COMP_CWORD=$#
"$(complete -p binlog-server | sed 's/.*-F \\([^ ]*\\) .*/\\1/')" binlog-server "${!#}" x
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    share = tmp_path_factory.mktemp("share")
    assert len(texts.write(share)) == 8
    return share


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ver"], {"verify"}),
        (["serve", "--metr"], {"--metrics-listen"}),
        (["serve", "--log-format", "j"], {"json"}),
        (["user", "a"], {"add"}),
    ],
)
def test_bash_completes(share: Path, words: list[str], found: set[str]) -> None:
    script = share / "bash-completion/completions/binlog-server"
    asked = subprocess.run(
        ["bash", "-c", ASKED, str(script), *words], capture_output=True, text=True, check=True
    )
    assert set(asked.stdout.split()) == found, asked.stderr


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield name
                yield from _options(command)
        elif action.help != argparse.SUPPRESS:
            yield from set(action.option_strings) - {"--help"}  # some pages have it as -h alone


def test_manual_pages_have_every_command_and_option(share: Path) -> None:
    for parser in texts.parsers():
        page = (share / f"man/man1/{parser.prog}.1").read_text("utf-8").replace("\\-", "-")
        missing = {name for name in _options(parser) if name not in page}
        assert len(set(_options(parser))) > 20
        assert not missing, parser.prog


def test_the_configuration_of_the_package(tmp_path: Path) -> None:
    """As it is, and with all that stands in it as an example."""
    given = (ROOT / "deploy/server.toml").read_text("utf-8")
    assert load(ROOT / "deploy/server.toml", {"binlog_directory": tmp_path}).server_id == 10
    whole = tmp_path / "server.toml"
    whole.write_text("\n".join(line.removeprefix("# ") for line in given.splitlines()[1:]))
    assert tomllib.loads(whole.read_text("utf-8"))["users"]
    assert load(whole, {"binlog_directory": tmp_path}).upstream


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_package_for_debian(tmp_path: Path) -> None:
    """Built, and unpacked beside the system: pip needs a registry for it."""
    subprocess.run([str(ROOT / "deploy/make-deb.sh"), str(tmp_path)], check=True)
    (package,) = tmp_path.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", str(package), str(tmp_path / "to")], check=True)
    home = tmp_path / "to/opt/binlog-server"
    assert (home / "bin/binlog-server").read_text().startswith("#!/opt/binlog-server/bin/python")
    program = "from binlog_server.cli import main; main(['ls', '--help'])"
    told = subprocess.run(
        [str(home / "bin/python"), "-I", "-c", program], capture_output=True, text=True, check=False
    )
    assert "list the files of a store" in told.stdout, told.stderr
    for name in ("usr/bin/binlog-spark", "lib/systemd/system/binlog-server.service"):
        assert (tmp_path / "to" / name).is_symlink() or (tmp_path / "to" / name).exists(), name
