"""docs/compatibility.md says what the lab found and what the live tests stand for, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from .compatibility.answers import INTENDED
from .compatibility.features import CLIENT_SCENARIOS, CLIENTS, FEATURES, REPLICAS
from .compatibility.fleet import SCRIPTS
from .compatibility.live import proofs
from .compatibility.outcome import STYLES
from .compatibility.page import COMMAND, PAGE, text
from .compatibility.recordings import recordings
from .compatibility.results import run
from .sessions.test_handshake_lab import require_served

MARKED = """
import pytest

@pytest.mark.proves({arguments})
def {name}({parameters}) -> None: ...
"""


async def test_the_page_is_what_ran() -> None:
    results = await run()
    outcomes = results.outcomes.values()
    differ = {(one.name, one.style): one.differences for one in outcomes if one.differences}
    assert differ == {}, "one at a time: tests/binlog_server/sessions/test_handshake_lab.py, slow"
    for name, recording in recordings().items():
        for style in STYLES:
            require_served(recording, results.outcomes[name, style])
    assert PAGE.read_text() == text(results), f"run {COMMAND}, and look at what has changed"
    met = {statement for outcome in results.outcomes.values() for statement in outcome.intended}
    assert {entry.statement for entry in INTENDED} == met, "take out what differs no more"


def test_what_is_marked_is_known() -> None:
    names = {feature.name for feature in FEATURES}
    for proof in proofs():
        place = f"{proof.path}::{proof.test}"
        assert proof.client in ("replica", *REPLICAS, *CLIENTS), place
        if proof.client not in CLIENTS:
            assert set(proof.features) <= names, place
        if proof.client == "replica":
            assert set(proof.versions) <= set(REPLICAS), place


def test_every_conversation_is_of_a_feature_or_a_client() -> None:
    shown = {scenario for feature in FEATURES for scenario in feature.scenarios}
    said = {recording.scenario for recording in recordings().values()}
    assert said == shown | set(CLIENT_SCENARIOS)
    names = {feature.name for feature in FEATURES}
    for script in SCRIPTS.values():
        assert script.client in CLIENTS or set(script.features) <= names, script.name


def marked(folder: Path, arguments: str, name: str = "test_it", parameters: str = "") -> Path:
    text = MARKED.format(arguments=arguments, name=name, parameters=parameters)
    (folder / "test_marked.py").write_text(text)
    return folder


def test_marked_tests_are_found(tmp_path: Path) -> None:
    (proof,) = proofs(marked(tmp_path, "'UNTIL', 'KILL'", parameters="backend: object"))
    assert (proof.test, proof.features) == ("test_it", ("UNTIL", "KILL"))
    assert (proof.client, proof.versions) == ("replica", ("10.11", "11.8"))
    (proof,) = proofs(marked(tmp_path, "'--raw', client='mariadb-binlog'"))
    assert (proof.client, proof.versions) == ("mariadb-binlog", ())


@pytest.mark.parametrize(
    ("arguments", "name", "reason"),
    [
        ("'UNTIL'", "test_it", "for which versions"),
        ("'UNTIL', versions=('11.8',)", "helper", "is no test"),
        ("", "test_it", r"proves\(\*features"),
        ("'UNTIL', on='11.8'", "test_it", r"proves\(\*features"),
        ("FEATURE", "test_it", "as constants"),
    ],
)
def test_what_cannot_be_claimed(tmp_path: Path, arguments: str, name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        proofs(marked(tmp_path, arguments, name))


def test_a_marker_that_is_not_above_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("pytestmark = pytest.mark.proves('UNTIL')\n")
    with pytest.raises(ValueError, match="belongs above a test"):
        proofs(tmp_path)
