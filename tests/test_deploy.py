"""How it is installed: completion and manual pages, the unit of systemd, the chart, the image.

tests/integration/test_systemd.py runs the unit, and has the package for Debian.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from binlog_server.settings.config import load
from deploy import texts
from tests.kit.programs import program

ROOT = Path(__file__).parent.parent
CHART = ROOT / "deploy/helm/binlog-server"
ASKED = """
source "$0"
COMP_WORDS=(binlog-server "$@") COMP_CWORD=$#
"$(complete -p binlog-server | sed 's/.*-F \\([^ ]*\\) .*/\\1/')" binlog-server "${!#}" x
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    share = tmp_path_factory.mktemp("share")
    texts.write(share)
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


@pytest.mark.parametrize(
    ("place", "long"),
    [("zsh/site-functions/_{}", "--{}"), ("fish/vendor_completions.d/{}.fish", "-l {}")],
)
def test_zsh_and_fish_are_told_of_every_option(share: Path, place: str, long: str) -> None:
    """Neither shell is on each machine that runs this: their scripts are read as texts."""
    for parser in texts.parsers():
        script = (share / place.format(parser.prog)).read_text("utf-8")
        for name in {name for name in _options(parser) if not re.match("-[^-]", name)}:
            shown = long.format(name[2:]) if name.startswith("--") else name
            assert re.search(rf"{re.escape(shown)}(?![\w-])", script), (parser.prog, name)


def test_manual_pages_have_every_command_and_option(share: Path) -> None:
    for parser in texts.parsers():
        page = (share / f"man/man1/{parser.prog}.1").read_text("utf-8").replace("\\-", "-")
        missing = {name for name in _options(parser) if name not in page}
        assert len(set(_options(parser))) > 20
        assert not missing, parser.prog


def test_each_command_has_a_manual_page_of_its_own(share: Path) -> None:
    """`man binlog-server user add` looks for binlog-server-user-add; `apropos` reads the NAME."""
    made = {path.stem: path.read_text("utf-8") for path in (share / "man/man1").iterdir()}
    commands = [one for parser in texts.parsers() for one in texts.pages(parser)]
    assert made.keys() == {parser.prog.replace(" ", "-") for _, parser in commands}
    assert {"binlog-server-serve", "binlog-server-user-add", "binlog-spark-stream"} <= made.keys()
    for said, parser in commands:
        page = made[parser.prog.replace(" ", "-")].replace("\\-", "-")
        assert said
        assert f".SH NAME\n{parser.prog.replace(' ', '-')} - {said.splitlines()[0]}" in page
        missing = {name for name in _options(parser) if name not in page}
        assert not missing, parser.prog


def test_the_configuration_of_the_package(tmp_path: Path) -> None:
    """As it is, and with all that stands in it as an example."""
    given = (ROOT / "deploy/server.toml").read_text("utf-8")
    assert load(ROOT / "deploy/server.toml", {"binlog_directory": tmp_path}).server_id == 10
    whole = tmp_path / "server.toml"
    whole.write_text("\n".join(line.removeprefix("# ") for line in given.splitlines()[1:]))
    assert tomllib.loads(whole.read_text("utf-8"))["users"]
    assert load(whole, {"binlog_directory": tmp_path}).upstream


def test_the_unit_of_systemd(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    text = (ROOT / "docs/binlog-server.service").read_text("utf-8")
    for wanted in ("Type=notify", "DynamicUser=yes", "StateDirectory=binlog-server"):
        assert wanted in text.splitlines()
    options = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert options["User"] != options["SupplementaryGroups"]  # systemd would not make that user
    unit = tmp_path / "binlog-server.service"
    # Its program is there once it is installed: /bin/true stands for it.
    unit.write_text(text.replace("/opt/binlog-server/bin/binlog-server", "/bin/true"))

    def verify() -> str:
        argv = [analyze, "verify", "--man=no", "--recursive-errors=no", str(unit)]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stderr

    assert verify() == ""
    unit.write_text(unit.read_text() + "[Service]\nStateDirektory=x\n")
    assert "StateDirektory" in verify()  # so it does look


def _chart(*options: str) -> dict[str, dict[str, Any]]:
    """What the chart makes, by kind and name."""
    argv = [program("helm"), "template", "relay", str(CHART), *options]
    made = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    parts = [part for part in yaml.safe_load_all(made.stdout) if part]
    return {f"{part['kind']}/{part['metadata']['name']}": part for part in parts}


def test_the_chart_is_linted() -> None:
    argv = [program("helm"), "lint", "--strict", str(CHART)]
    linted = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_the_chart(tmp_path: Path) -> None:
    made = _chart()
    assert made.keys() == {
        "Secret/relay-binlog-server",
        "Service/relay-binlog-server",
        "Service/relay-binlog-server-pod",
        "StatefulSet/relay-binlog-server",
    }
    pod = made["StatefulSet/relay-binlog-server"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    paths = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")}
    assert paths == {"/healthz"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    file = tmp_path / "server.toml"
    file.write_text(made["Secret/relay-binlog-server"]["stringData"]["server.toml"])
    config = load(file, {}, {one["name"]: one["value"] for one in container["env"]})
    mounted = {Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    assert config.binlog_directory.parent in mounted
    assert Path("/etc/binlog-server") in mounted
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"mariadb": config.listen_port, "metrics": 9104}
    assert config.metrics_listen.endswith(":9104")
    assert (
        made.keys()
        | {
            "PodDisruptionBudget/relay-binlog-server",
            "NetworkPolicy/relay-binlog-server",
        }
        == _chart("--set", "podDisruptionBudget.enabled=true,networkPolicy.enabled=true").keys()
    )


def test_the_chart_refuses_values_that_it_does_not_know() -> None:
    argv = [program("helm"), "template", "relay", str(CHART), "--set", "replicas=2"]
    refused = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "replicas" in refused.stderr


def test_versions_are_one() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_the_image_is_for_two_processors() -> None:
    built = json.loads((ROOT / "docker/docker-bake.json").read_text("utf-8"))["target"]
    for target in built.values():
        assert target["platforms"] == ["linux/amd64", "linux/arm64"]
        assert (ROOT / target["dockerfile"]).is_file()
    image = (ROOT / "docker/server/Dockerfile").read_text("utf-8")
    assert "HEALTHCHECK" in image
    assert "/readyz" in image
    given = dict(re.findall(r"(BINLOG_SERVER_[A-Z_]+)=(\S+)", image.partition("\nENV ")[2]))
    assert load(None, {}, given).listen_host == "0.0.0.0"
