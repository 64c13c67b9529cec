"""What is installed: typed packages, and jobs that need no Spark."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.pipeline.stores import make_store
from tests.storage.groups import simple

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_all_packages_are_typed() -> None:
    for package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert (ROOT / package / "py.typed").is_file(), package


def test_the_source_has_what_make_needs() -> None:
    """Of the files that the environment is made from."""
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    rule = re.search(
        r"^\$\(STAMP\) .*: (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    assert rule is not None
    for name in rule[1].split():
        assert (ROOT / name).is_file(), name
        assert Path(name).parts[0] in (*included, "pyproject.toml"), name


def test_jobs_need_no_pyspark(tmp_path: Path) -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert not any("spark" in needed for needed in extras["jobs"])
    store = make_store(tmp_path / "store", simple(10))
    program = (
        "import sys\n"
        "sys.modules['pyspark'] = None\n"
        "from binlog_pipeline.cli import main\n"
        f"for job in ('stats', 'verify', 'archive'):\n"
        f"    more = [job + '_out'] if job == 'archive' else []\n"
        f"    assert main([job, {str(store)!r}, *more]) == 0, job\n"
        f"assert main(['stream', '--from', {str(store)!r}, '--to', 't', '--table', 'd.t', '--checkpoint', 'c']) == 1\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "pip install '.[spark]'" in done.stderr
