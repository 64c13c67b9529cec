"""The shape that must stay (rooms and cycles: test_import_direction.py), and that it is counted rightly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import JOBS, House, product

FUNCTION_LINES_MAX = 70


def test_no_function_is_longer_than_a_page() -> None:
    assert [one for one in product().functions if one[0] > FUNCTION_LINES_MAX] == []


def test_one_class_name_is_one_class() -> None:
    assert product().ambiguous_classes == {}


PLACES = {
    # Beside the readers: `verify` tells what is wrong with one, `broken` looks into a file that cannot be read.
    "a commit record is decoded": ["broken", "group_reader", "verify"],
    # Of pages in a file by what is written, of files and pages by their states; and of an upstream's files.
    "a page is found by bisection": ["log_file", "search"],
}
"""Jobs that are done in more than one place, each for a reason."""


@pytest.mark.parametrize("job", JOBS)
def test_one_job_has_one_place(job: str) -> None:
    places = [name.rpartition(".")[2] for name in product().places[job]]
    if job in PLACES:
        assert sorted(places) == PLACES[job]
    else:
        assert len(places) == 1, places


def test_a_small_house_is_counted(tmp_path: Path) -> None:
    for name, text in {
        "binlog_server/__init__.py": "",
        "binlog_server/a.py": "class Twice: ...\nclass _Own: ...\nfrom binlog_server import b, c\n",
        "binlog_server/b.py": "class Twice: ...\nclass _Own: ...\nimport binlog_server.c\n",
        "binlog_server/c.py": "class Once:\n    def f(self):\n        # one\n        return 1\n",
        "binlog_server/d.py": "if TYPE_CHECKING:\n    from binlog_server.b import Twice\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    house = House(tmp_path)
    assert sum(module.lines for module in house.modules.values()) == 12
    assert house.needs["binlog_server.a"] == {"binlog_server.b", "binlog_server.c"}
    assert house.with_one_importer == ["binlog_server.b"]
    assert house.ambiguous_classes == {"Twice": ["binlog_server.a", "binlog_server.b"]}
    assert house.functions == [(3, "binlog_server.c.f")]
