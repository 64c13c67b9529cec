"""Masters of tests: what goes into their binlog and how, who is connected; and the examples of the page, as tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from binlog_protocol.errors import BadValue, ProtocolError, ServerError
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import build_event
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.groups.statement_group import Origin
from binlog_protocol.gtid import Gtid
from binlog_storage.errors import NotAStore
from binlog_storage.ibb.file_names import file_name
from binlog_storage.intake.intake import DoesNotContinue

from binlog_server import testing
from binlog_server.faults.faults import BadFault
from binlog_server.settings.config import ConfigError
from binlog_server.testing import BinlogMaster, new_master, running_master
from tests.binlog_server.testing.examples import ExampleTests, examples
from tests.storage.classic import binlog_files

OTHER = Origin(9)
UNKNOWN = 200
"""A type of event that nobody logs."""


@pytest.fixture(scope="module")
def shared() -> Iterator[BinlogMaster]:
    """For tests that look at what they have added alone. `shop.t` is here."""
    with running_master() as master:
        master.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, a TEXT)")
        yield master


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The .ibb file of a master that has logged 0-1-1 to 0-1-3, by another name."""
    folder = tmp_path_factory.mktemp("captured")
    with running_master(directory=folder / "store") as master:
        for name in ("one", "two", "three"):
            master.sql(f"CREATE DATABASE {name}")
    shutil.copyfile(folder / "store" / file_name(0), folder / "captured.ibb")
    return folder / "captured.ibb"


def logged(master: BinlogMaster, gtid: str) -> list[str]:
    """The types of the events of a group."""
    found: list[str] = []
    for row in master.sql("SHOW BINLOG EVENTS"):
        if row["Event_type"] == "Gtid":
            if found:
                break
            if row["Info"].endswith(f"GTID {gtid}"):
                found.append("Gtid")
        elif found:
            found.append(row["Event_type"])
    return found


def query(text: str = "INSERT INTO t VALUES (1)") -> bytes:
    return QueryEvent(text.encode(), 9, b"d").build()


def group(gtid: str, text: str = "INSERT INTO t VALUES (1)") -> list[bytes]:
    named = Gtid.parse(gtid)
    return [OTHER.begin(named, 0), query(text), OTHER.commit(named.seq_no, 0)]


# --- rows ---


def test_rows_of_a_table_that_is_here(shared: BinlogMaster) -> None:
    rows = [{"id": 1, "a": "x"}, {"id": 2, "a": "it's"}]
    gtid = shared.rows("shop.t", rows, update=[({"id": 1}, {"a": None})], delete=[{"id": 2}])
    assert shared.sql("SELECT * FROM shop.t") == [{"id": 1, "a": None}]
    one = ["Annotate_rows", "Table_map"]
    assert logged(shared, gtid) == [
        *("Gtid", *one, "Write_rows_v1", *one, "Update_rows_v1", *one, "Delete_rows_v1", "Xid")
    ]
    assert shared.rows("shop.t", delete=[{"id": 99}]) == ""
    with pytest.raises(ServerError) as caught:
        shared.rows("shop.t", [{"id": 7}, {"id": 1}])
    assert caught.value.errno == 1062
    assert len(shared.sql("SELECT * FROM shop.t")) == 1, "all of it or nothing"


def test_rows_of_any_layout(shared: BinlogMaster) -> None:
    columns = {"id": "BIGINT UNSIGNED", "d": "DECIMAL(5,2)", "f": "DOUBLE", "e": "ENUM('a','b')"}
    before = shared.gtid_binlog_pos
    gtid = shared.rows(
        "no.where",
        [{"id": 2**64 - 1, "d": 3, "f": 4, "e": "b"}, {"id": 0}],
        update=[({"id": 5, "e": "a"}, {"id": 6})],
        delete=[{"id": 7}],
        columns=columns,
        keys=["PRIMARY KEY (id)"],
    )
    assert int(gtid.split("-")[2]) == int(before.split("-")[2]) + 1
    rows = ["Write_rows_v1", "Update_rows_v1", "Delete_rows_v1"]
    assert logged(shared, gtid) == ["Gtid", "Table_map", *rows, "Xid"]
    for wrong in ({"id": -1}, {"id": 1, "e": "c"}, {"id": 1, "x": 1}, {"id": None}):
        with pytest.raises(BadValue):
            shared.rows("no.where", [wrong], columns=columns, keys=["PRIMARY KEY (id)"])
    with pytest.raises(BadValue):
        shared.rows("no.where", columns=columns)
    with pytest.raises(BadValue, match=r"shop\.nowhere"):
        shared.rows("nowhere", [{"id": 1}], columns=columns, keys=["PRIMARY KEY (id)"])
    gtid = shared.rows("no.key", [{"a": None}, {"a": 1}], columns={"a": "INT"})
    assert logged(shared, gtid) == ["Gtid", "Table_map", "Write_rows_v1", "Xid"]
    with pytest.raises(ServerError):
        shared.rows("no.where", [{"id": 1}], columns={"id": "NO TYPE"})


# --- events ---


def test_events_without_a_gtid_are_the_next_transaction(shared: BinlogMaster) -> None:
    shared.sql("CREATE DATABASE before_it")
    number = int(shared.gtid_binlog_pos.split("-")[2])
    gtid = shared.raw([query()])
    assert gtid == f"0-1-{number + 1}"
    assert logged(shared, gtid) == ["Gtid", "Query", "Xid"]
    assert shared.raw([query(), OTHER.commit(7, 0)]) == f"0-1-{number + 2}"
    assert shared.raw([append_checksum(query())], checksums=True) == f"0-1-{number + 3}"
    shared.sql("CREATE DATABASE behind_it")
    assert shared.gtid_binlog_pos == f"0-1-{number + 4}"


def test_groups_under_their_own_gtids() -> None:
    with running_master() as master:
        events = [*group("3-9-7"), *group("3-9-5"), *group("3-9-5", "DELETE FROM t")]
        assert master.raw(events) == "3-9-5"
        assert master.gtid_binlog_pos == "3-9-5"
        shown = [r["Info"] for r in master.sql("SHOW BINLOG EVENTS") if r["Event_type"] == "Gtid"]
        assert shown == ["BEGIN GTID 3-9-7", "BEGIN GTID 3-9-5", "BEGIN GTID 3-9-5"]
        master.sql("SET SESSION gtid_domain_id = 3; CREATE DATABASE d")
        assert master.gtid_binlog_pos == "3-1-6", "behind the last of each server, as MariaDB"


def test_a_format_description_says_how_the_events_behind_it_end(shared: BinlogMaster) -> None:
    description = FormatDescription("11.8.9-MariaDB", 9, checksum_algorithm=1).build()
    events = [append_checksum(event) for event in group("4-9-1")]
    assert shared.raw([description, *events]) == "4-9-1"
    with pytest.raises(ProtocolError):
        shared.raw([description, *group("4-9-2")])


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([], BadValue),
        (group("5-9-1")[:2], ProtocolError),
        ([query(), *group("5-9-1")], ProtocolError),
        ([query()[:-1]], ProtocolError),
        ([build_event(EventType.TABLE_MAP, b"what", server_id=9)], ProtocolError),
        ([OTHER.commit(1, 0), query()], ProtocolError),
        ([*group("5-9-1"), IncidentEvent("lost", 9).build()], ProtocolError),
    ],
    ids=["none", "no end", "outside", "cut", "unsound", "behind the end", "incident"],
)
def test_events_that_no_master_logs(
    shared: BinlogMaster, events: list[bytes], error: type[Exception]
) -> None:
    before = shared.gtid_binlog_pos
    with pytest.raises(error):
        shared.raw(events)
    assert shared.gtid_binlog_pos == before


def test_anything_with_a_header_goes_unchecked() -> None:
    odd = build_event(UNKNOWN, b"what", server_id=9)
    with running_master() as master:
        assert master.raw([odd], check=False) == "0-1-1"
        begin, *rest = group("0-9-2")
        assert master.raw([begin, odd, *rest], check=False) == "0-9-2"
        with pytest.raises(ProtocolError):
            master.raw([odd[:-1]], check=False)
        master.sql("CREATE DATABASE d")
        assert master.gtid_binlog_pos == "0-1-3"


def test_groups_larger_than_the_store_takes_at_once() -> None:
    text = "INSERT INTO t VALUES ('" + "x" * (3 << 20) + "')"
    with running_master(innodb_log_file_size=4 << 20) as master:
        assert master.raw(group("0-9-1", text)) == "0-9-1"
        with pytest.raises(BadValue, match="without a GTID event"):
            master.raw([query(text)])
        assert master.gtid_binlog_pos == "0-9-1"


def test_nothing_is_put_into_a_domain_of_the_upstream() -> None:
    with running_master(read_only=True) as master:
        with pytest.raises(ServerError) as caught:
            master.raw(group("0-9-1"))
        assert caught.value.errno == 1290


# --- files ---


def test_a_captured_history(captured: Path) -> None:
    with running_master() as master:
        assert master.load(captured) == "0-1-3"
        assert master.load([captured]) == "0-1-3", "it is there already"
        master.sql("CREATE DATABASE four")
        assert master.gtid_binlog_pos == "0-1-4"
        assert master.sql("SELECT BINLOG_GTID_POS('binlog-000000.ibb', 4) AS p") != []
        master.restart()
        assert master.gtid_binlog_pos == "0-1-4"
    with running_master() as master:
        master.sql("CREATE DATABASE another")
        with pytest.raises(DoesNotContinue):
            master.load(captured)
        assert master.raw(captured) == "0-1-3"
        master.sql("CREATE DATABASE four")
        assert master.gtid_binlog_pos == "0-1-4"


def test_traditional_files(tmp_path: Path) -> None:
    first, second = binlog_files.write_chain(
        tmp_path, binlog_files.simple(2, first=5), binlog_files.simple(2, first=7)
    )
    with running_master() as master:
        assert master.load(second) == "0-1-8"
        assert master.value("SELECT @@GLOBAL.binlog_gtid_begin") == "0-1-6"
        assert master.raw(first) == "0-1-6"
        assert master.raw(str(second)) == "0-1-8"
    with running_master() as master:
        assert master.load(first, second) == "0-1-8"


# --- faults ---

SCENARIO = """
[[fault]]
do = "error"
gtid = "0-1-5"
errno = 1236

[[fault]]
do = "cut"
event = 2
server_id = 7
"""


def test_faults_of_a_file(shared: BinlogMaster, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    shared.load_faults(scenario)
    shared.fault("throttle", event=1, bytes_per_second=10)
    assert shared.faults_met == [("error", 0), ("cut", 0), ("throttle", 0)]
    with pytest.raises(BadFault, match="none of delay, throttle"):
        shared.fault("explode", event=1)
    for wrong in (
        SCENARIO + 'when = "now"',
        SCENARIO + "[other]",
        "fault = 3",
        "fault = [3]",
        "[",
        "#\xff",
    ):
        scenario.write_text(wrong, "latin-1")
        with pytest.raises(BadFault):
            shared.load_faults(scenario)
    assert len(shared.faults_met) == 3
    shared.clear_faults()
    scenario.write_text("\ufeff" + SCENARIO, "utf-8")
    shared.load_faults(scenario)
    assert len(shared.faults_met) == 2
    shared.clear_faults()
    assert shared.faults_met == []


# --- who is connected ---


def test_connections(shared: BinlogMaster) -> None:
    assert shared.connections == []
    with shared.connect():
        (one,) = shared.connections
    assert (one.user, one.command, one.server_id, one.sent_gtid) == ("tester", "Sleep", None, None)
    with pytest.raises(TimeoutError, match="0-1-1 sent to server_id 100: not within 0 s"):
        shared.wait_for(100, "0-1-1", timeout=0)


def test_its_life(tmp_path: Path) -> None:
    with running_master(directory=tmp_path / "store", users={"app": "word"}) as master:
        assert master.url == f"mariadb://tester:tester-password@127.0.0.1:{master.port}"
        with master.connect(user="app", password="word"):
            pass
        master.sql(
            "CREATE DATABASE shop; CREATE TABLE shop.t (a INT PRIMARY KEY); INSERT INTO shop.t VALUES (%s)",
            5,
        )
        master.options["server_id"] = 8
        assert master.alive()
        assert master.restart().sql("SELECT a, @@server_id AS id FROM shop.t") == [
            {"a": 5, "id": 8}
        ]
        master.stop()
        master.stop()
        assert not master.alive()
        with pytest.raises(pymysql.OperationalError):
            master.sql("SELECT 1")
    assert (tmp_path / "store").exists(), "it was given from outside"
    assert not master.dir.exists()
    with pytest.raises(ConfigError), running_master(no_such_option=1):
        pass


# --- the page ---


@pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")
@pytest.mark.parametrize("example", examples())
def test_the_examples_of_the_page(
    request: pytest.FixtureRequest,
    captured: Path,
    monkeypatch: pytest.MonkeyPatch,
    example: str,
) -> None:
    monkeypatch.chdir(captured.parent)
    assert ExampleTests(request).run(example) == ("def test_" in example)


def test_mistakes_are_told_in_words(shared: BinlogMaster, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"seed: 'x' is no whole number"):
        shared.random("x")  # type: ignore[arg-type]
    with pytest.raises(BadFault, match=r"gtid: '0-1' is none, such as '0-1-5'"):
        shared.fault("cut", gtid="0-1")
    with pytest.raises(TimeoutError, match=r"sent to server_id 5: .*connected and sent: nobody"):
        shared.wait_for(5, "0-1-1", timeout=0)
    (tmp_path / "ahead.ibb").write_bytes(bytes(1 << 16))
    with pytest.raises(
        NotAStore, match=r"ahead\.ibb has nothing in it: an .ibb file that was made ahead"
    ):
        shared.load(tmp_path / "ahead.ibb")
    with pytest.raises(BadValue, match=r"'orders' has no database: shop\.orders"):
        shared.rows("orders", [{"id": 1}])
    with pytest.raises(BadValue, match=r"\(1,\) is no row, such as"):
        shared.rows("shop.t", [(1,)], columns={"id": "INT"})  # type: ignore[list-item]
    with pytest.raises(BadValue, match="events in a list, or the name of a file; not bytes"):
        shared.raw(query())  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="files by their names, not bytes"):
        shared.load(b"captured")  # type: ignore[arg-type]
    scenario = tmp_path / "scenario.toml"
    for text, wrong in (
        ("", "it has .* tables alone, not none"),
        (SCENARIO + "[[fault]]", "fault 3 of 3: do is missing"),
        (SCENARIO + '[[fault]]\ndo = "cut"', "fault 3 of 3: cut: give one place of .*; not none"),
        ('[[fault]]\ndo = "error"\nerrno = 70000', "errno: 70000 is not between 0 and 65535"),
    ):
        scenario.write_text(text)
        with pytest.raises(BadFault, match=rf"scenario\.toml: {wrong}"):
            shared.load_faults(scenario)
    assert shared.faults_met == []


@pytest.mark.parametrize("process", [False, True])
def test_one_that_does_not_run_says_so(process: bool) -> None:
    master = new_master(process=process)
    for call in (
        lambda: master.rows("d.t", [{"a": 1}]),
        lambda: master.fault("cut", event=3),
        lambda: master.faults_met,
    ):
        with pytest.raises(RuntimeError, match=r"does not run: start\(\) starts it"):
            call()
    master.discard()


@pytest.mark.parametrize("process", [False, True])
def test_a_replay_that_ended_with_its_master_says_so(process: bool, captured: Path) -> None:
    """Its handle was that of the first one behind the next start, or raised IndexError."""
    with running_master(process=process) as master:
        before = master.replay(captured, rate=1)
        master.restart()
        behind = master.replay(captured, rate=1000, loop=0)
        for call in (before.wait, before.stop, lambda: before.count):
            with pytest.raises(RuntimeError, match="its master was stopped meanwhile"):
                call()
        assert behind.count >= 0
        with pytest.raises(TimeoutError):
            behind.wait(timeout=0)
        behind.stop()


def test_a_connection_is_one_of_pymysql(shared: BinlogMaster) -> None:
    connection = shared.connect()
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1 AS one")
        assert cursor.fetchall() == [{"one": 1}]
    assert not connection.open


def test_what_the_page_names_is_here() -> None:
    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name


def test_a_master_of_a_test_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with running_master():
        assert not [one for one in caplog.records if one.levelname == "WARNING"]
