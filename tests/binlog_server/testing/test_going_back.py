"""Faults by which a master loses its tail, or has another history: by SQL, by TOML, in a process of its own too."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from binlog_server.faults.faults import BadFault, Faults
from binlog_server.store.marks import StoreMark
from binlog_server.store.replacement import MARKS
from binlog_server.testing.master import BinlogMaster
from binlog_server.testing.running import new_master, running_master
from binlog_server.testing.waiting import until


def meets(master: BinlogMaster) -> None:
    with pytest.raises(pymysql.OperationalError, match="Lost connection"):
        master.sql("SELECT 'now'")


def filled(master: BinlogMaster) -> None:
    master.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY)")
    master.rows("d.t", [{"a": 1}])


@pytest.mark.parametrize("engine", ["innodb", ""])
def test_by_sql_and_the_other_faults_stay(engine: str) -> None:
    with running_master(binlog_storage_engine=engine) as master:
        filled(master)
        with master.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT CONNECTION_ID() AS id")
            number = cursor.fetchall()[0]["id"]
            cursor.execute("CREATE BINLOG FAULT back DO lose_tail STATEMENT='SELECT ''now' TIMES=2")
            cursor.execute(f"CREATE BINLOG FAULT gone DO cut EVENT=1 CONNECTION={number}")
            cursor.execute("CREATE BINLOG FAULT stays DO cut GTID='0-1-9'")
        for _ in range(2):
            assert master.rows("d.t", [{"a": 2}]) == "0-1-4"
            meets(master)
            assert master.gtid_binlog_pos == "0-1-3"
            assert master.sql("SELECT a FROM d.t") == [{"a": 1}]
        assert [(row["Name"], row["Met"]) for row in master.sql("SHOW BINLOG FAULTS")] == [
            ("back", 2),
            ("stays", 0),
        ]
        marks = list(_marks(master))
        assert marks
        master.sql("DROP ALL BINLOG FAULTS")
        assert not any(mark.exists() for mark in marks)


def _marks(master: BinlogMaster) -> list[Path]:
    faults = master._served.server.faults  # type: ignore[attr-defined]
    return [one.mark.folder for one in faults.ordered() if one.mark is not None]


def test_a_way_back_that_fails_ends_the_master_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who connects then is refused, and does not wait for nobody."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with running_master(directory=tmp_path / "store") as master:
        filled(master)
        master.sql("CREATE BINLOG FAULT back DO lose_tail STATEMENT='SELECT ''now'")
        monkeypatch.setattr(StoreMark, "restore", full)
        meets(master)
        with pytest.raises(OSError, match="No space"):
            master.fault("cut", event=1)
        with pytest.raises(pymysql.OperationalError, match="refused"):
            master.sql("SELECT 1")
        master.stop()
        assert not (tmp_path / "store" / MARKS).exists()
        monkeypatch.undo()
        assert master.start().gtid_binlog_pos == "0-1-3"


@pytest.mark.parametrize(
    "text", ["fault = " + "[" * 100_000, "[[fault]]\nevent = " + "9" * 5000], ids=["deep", "long"]
)
def test_a_scenario_that_the_parser_cannot_bear_is_a_bad_one(text: str, tmp_path: Path) -> None:
    scenario = tmp_path / "hostile.toml"
    scenario.write_text(text)
    master = new_master()
    with pytest.raises(BadFault, match=r"hostile\.toml"):
        master.load_faults(scenario)
    master.discard()


def test_by_a_scenario_when_a_stream_is_at_its_place(tmp_path: Path) -> None:
    """Who has what is lost asks for a place that is another one now. Our relay sees it."""
    scenario = tmp_path / "other.toml"
    scenario.write_text('[[fault]]\ndo = "another_history"\ngtid = "0-1-5"\n')
    with running_master() as master, running_master(server_id=7, read_only=True) as relay:
        filled(master)
        master.load_faults(scenario)
        master.rows("d.t", [{"a": 2}])
        relay.sql(
            f"CHANGE MASTER TO MASTER_HOST='{master.host}', MASTER_PORT={master.port}, MASTER_SSL=0, "
            f"MASTER_USER='{master.account.user}', MASTER_PASSWORD='{master.account.password}', "
            "MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1; START SLAVE"
        )
        until(lambda: relay.gtid_binlog_pos == "0-1-4", "it has what is going to be lost", 30)
        master.rows("d.t", [{"a": 3}])
        until(lambda: relay.sql("SHOW SLAVE STATUS")[0]["Last_IO_Errno"] == 1593, "it stops", 30)
        assert master.gtid_binlog_pos == "0-1-5"
        assert master.sql("SELECT a FROM d.t") == [{"a": 1}]
        assert master.faults_met == [("another_history", 1)]
        infos = [row["Info"] for row in master.sql("SHOW BINLOG EVENTS")]
        assert infos.count("DO 0 /* another history */") == 2


def test_it_may_end_while_it_goes_back() -> None:
    with running_master() as master:
        filled(master)
        master.fault("lose_tail", statement="SELECT 'now")
        meets(master)
    assert not master.alive()


def test_its_loop_does_not_wait_for_what_waits_for_it() -> None:
    """Such as a load that is being logged there."""
    with running_master() as master:
        served = master._served  # type: ignore[attr-defined]
        before = served.server
        master.fault("lose_tail", statement="SELECT 'now")

        def goes_back_and_asks() -> bool:
            before.faults.go_back(before.faults.ordered()[0])
            return served.server is before

        assert served._on_loop(goes_back_and_asks)
        assert served.server is not before


def test_a_mark_of_a_fault_that_is_dropped_meanwhile_goes_behind_it() -> None:
    faults, kept, other = Faults(), Kept(), Kept()
    met: list[str] = []
    faults.go_back = lambda one: met.append(one.name)
    faults.add([{"do": "lose_tail", "gtid": "0-1-1", "name": "first"}], mark=kept)
    faults.add([{"do": "lose_tail", "gtid": "0-1-2", "name": "second"}], mark=other)
    for one in faults.ordered():
        faults.restart(one.fault)
    assert met == ["first"]
    faults.drop("first")
    assert not kept.is_gone
    Faults().take_over(faults)
    assert (kept.is_gone, other.is_gone) == (True, False)


def test_it_keeps_a_bounded_number_of_stores() -> None:
    faults = Faults()
    faults.make_mark = Kept
    for number in range(16):
        order = {"do": "lose_tail", "gtid": f"0-1-{number}"}
        assert faults.needs_mark([order])
        faults.add([order], mark=Kept())
    with pytest.raises(BadFault, match="more than 16"):
        faults.needs_mark([{"do": "lose_tail", "gtid": "0-1-1"}])


def test_a_store_that_it_goes_back_to_stays_when_its_fault_is_dropped() -> None:
    faults, kept, other = Faults(), Kept(), Kept()
    faults.go_back = lambda one: None
    faults.add([{"do": "lose_tail", "gtid": "0-1-1", "name": "back"}], mark=kept)
    faults.add([{"do": "lose_tail", "gtid": "0-1-2"}], mark=other)
    faults.restart(faults.ordered()[0].fault)
    faults.clear()
    assert (kept.is_gone, other.is_gone) == (False, True)
    faults.end()
    assert kept.is_gone


class Kept:
    """A store that nobody has."""

    is_gone = False

    def discard(self) -> None:
        self.is_gone = True


def test_where_nobody_can_go_back_it_is_refused() -> None:
    faults, order = Faults(), {"do": "lose_tail", "gtid": "0-1-1"}
    with pytest.raises(BadFault, match="part of another program"):
        faults.needs_mark([order])
    with pytest.raises(BadFault, match="no mark"):
        faults.add([order])
    assert not faults.needs_mark([{"do": "cut", "gtid": "0-1-1"}])
