"""docs/sql.md tells every statement of the grammar and every variable that SET GLOBAL changes, and no other."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from binlog_protocol.errors import SqlSyntaxError

from binlog_server.sql.parser import MAIN, parse
from binlog_server.sql.variables import VARIABLES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "sql.md").read_text()

ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]
SYNOPSES = [
    text.replace("\\|", "|")
    for row in ROWS
    for text in re.findall(r"`([A-Z][^`]*)`", re.split(r"(?<!\\)\|", row)[1])
]
# What stands for what in a synopsis.
EXAMPLES = {
    "'file'": "'binlog-000001.ibb'",
    "'x'": "'x'",
    "WHERE ...": "WHERE Value = 'x'",
    "time": "'2026-11-20 10:00:00'",
    "'position'": "'0-1-1'",
    "'gtids'": "'0-1-1'",
    "(n, ...)": "(1, 2)",
    "value, ...": "@@port, 1",
    "SELECT ...": "SELECT 1",
    "option=value ...": "event=1 times=0",
    "offset": "4",
    "count": "3",
    "seconds": "1",
    "name": "etl",
    "n": "7",
}


def variants(synopsis: str) -> list[str]:
    """All statements that a synopsis stands for: with and without each [part | other part], each of A|B."""
    inner = re.search(r"\[([^\[\]]*)\]", synopsis)
    if inner is not None:
        head, tail = synopsis[: inner.start()], synopsis[inner.end() :]
        choices = ["", *inner[1].split(" | ")]
        found = [variants(head + choice + tail) for choice in choices]
        return list(itertools.chain(*found))
    word = re.search(r"[A-Z_]+(?:\|[A-Z_]+)+", synopsis)
    if word is not None:
        chosen = [
            variants(synopsis[: word.start()] + choice + synopsis[word.end() :])
            for choice in word[0].split("|")
        ]
        return list(itertools.chain(*chosen))
    pattern = "|".join(rf"(?<![\w']){re.escape(key)}(?![\w'])" for key in EXAMPLES)
    return [re.sub(pattern, lambda match: EXAMPLES[match[0]], synopsis)]


STATEMENTS = sorted({text for synopsis in SYNOPSES for text in variants(synopsis)})


@pytest.mark.parametrize("text", STATEMENTS)
def test_what_is_documented_is_understood(text: str) -> None:
    try:
        parse(text)
    except SqlSyntaxError as error:
        pytest.fail(f"{text}: {error}")


def test_every_key_word_of_the_grammar_is_documented() -> None:
    """Those with which a statement begins, and those that follow SHOW."""
    said = set(re.findall(r"[A-Z_]+", " ".join(SYNOPSES) + PAGE))
    rules = re.sub(r"//.*", "", MAIN.text)
    words = set(re.findall(r'"([A-Za-z_]+)"i', rules))
    synonyms = {"LOCAL", "MASTER", "CHARSET", "SCHEMAS", "STORAGE", "AS"}
    synonyms |= {"SYSDATE", "UTC_TIMESTAMP", "CURRENT_DATE", "UTC_DATE"}  # of NOW(), CURDATE()
    values = {"NULL", "ON", "COLLATE", "DEFAULT", "OFFSET"}
    assert words - said - synonyms - values == set()


def test_every_global_variable_is_documented() -> None:
    table = PAGE[PAGE.index("| variable | needs") :]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    needs = {
        name: row.split("|")[2].strip()
        for row in rows
        for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])
    }
    found = {v.name for v in VARIABLES.values() if v.set_global is not None}
    assert set(needs) <= found
    assert {name for name in found if not VARIABLES[name].is_kept} <= set(needs)
    for name, privilege in needs.items():
        assert privilege in (VARIABLES[name].set_global or ()), name
