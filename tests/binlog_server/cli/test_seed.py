"""`binlog-server seed`: positions in dumps and backups of all kinds; an empty store only."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.errors import PositionPurged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binlog_server.cli.seed_backup import backup_position
from binlog_server.cli.seed_dump import dump_position
from binlog_server.cli.seed_position import NoPosition
from binlog_server.store.store_directory import StoreDirectory
from tests.binlog_server.cli.command import Ran, run
from tests.storage import groups
from tests.storage.sizes import small

GTIDS = "3-21002-1,0-21002-4"

HEAD = """/*M!999999\\- enable the sandbox mode */
-- MariaDB dump 10.19  Distrib 10.11.19-MariaDB, for debian-linux-gnu (x86_64)
--
-- Host: localhost    Database: d
-- ------------------------------------------------------
-- Server version	10.11.19-MariaDB-0+deb12u1-log

/*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT */;
"""
BODY = """
--
-- Current Database: `d`
--

CREATE DATABASE /*!32312 IF NOT EXISTS*/ `d`;

USE `d`;

--
-- Table structure for table `t`
--

DROP TABLE IF EXISTS `t`;
CREATE TABLE `t` (
  `a` varchar(200) DEFAULT NULL COMMENT '
SET GLOBAL gtid_slave_pos=\\'9-9-9\\';
'
);
INSERT INTO `t` VALUES
('SET GLOBAL gtid_slave_pos=\\'9-9-9\\';');
COMMIT;
"""
END = """/*!40103 SET TIME_ZONE=@OLD_TIME_ZONE */;

/*!40111 SET SQL_NOTES=@OLD_SQL_NOTES */;

-- Dump completed on 2026-11-21  9:08:56
"""
FILE_POSITION = "CHANGE MASTER TO MASTER_LOG_FILE='m-bin.000002', MASTER_LOG_POS=617;\n"

# Of 10.11 and 11.8, as of 2026: behind the tables.
DEFERRED = {
    "--master-data --gtid": (
        "CHANGE MASTER TO MASTER_USE_GTID=slave_pos;\n\n-- A corresponding to the above master-data CHANGE-MASTER "
        "settings to the slave gtid state is printed later in the file.\n\n--\n-- Alternately, following is the "
        f"position of the binary logging from SHOW MASTER STATUS at point of backup.\n--\n\n-- {FILE_POSITION}",
        "\n-- The deferred gtid setting for slave corresponding to the master-data CHANGE-MASTER follows\n\n"
        "-- Preferably use GTID to start replication from GTID position:\n\nSET GLOBAL gtid_slave_pos='{}';\n",
    ),
    "--master-data": (
        f"{FILE_POSITION}\n-- A corresponding to the above master-data CHANGE-MASTER settings to the slave gtid state "
        "is printed as comments later in the file.\n",
        "\n-- The deferred gtid setting for slave corresponding to the master-data CHANGE-MASTER follows\n\n"
        "-- Preferably use GTID to start replication from GTID position:\n\n-- SET GLOBAL gtid_slave_pos='{}';\n",
    ),
    "--dump-slave=2": (
        "-- A corresponding to the below dump-slave CHANGE-MASTER settings to the slave gtid state is printed later "
        "in the file.\n-- CHANGE MASTER '' TO MASTER_LOG_FILE='m-bin.000002', MASTER_LOG_POS=617;\n",
        "\n-- The deferred gtid setting for slave corresponding to the dump-slave CHANGE-MASTER follows\n\n"
        "-- GTID position to start replication:\n-- SET GLOBAL gtid_slave_pos='{}';\n",
    ),
}
# Before: in the head.
AT_ONCE = {
    "--master-data --gtid": "CHANGE MASTER TO MASTER_USE_GTID=slave_pos;\n\nSET GLOBAL gtid_slave_pos='{}';\n",
    "--master-data=2": f"-- {FILE_POSITION}\n-- SET GLOBAL gtid_slave_pos='{{}}';\n",
    "spaces": "SET GLOBAL gtid_slave_pos = '{}' ;\n".replace(" ;", ";"),
}


def written(path: Path, text: str, *, packed: bool = False) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", DEFERRED)
def test_a_dump_with_the_position_at_its_end(tmp_path: Path, kind: str, packed: bool) -> None:
    begin, end = DEFERRED[kind]
    dump = tmp_path / "dump.sql"
    for rows in (1, 40_000):  # less and more than is looked at
        text = HEAD + begin + BODY * rows + end.format(GTIDS) + END
        written(dump, text, packed=packed)
        position, where = dump_position(dump)
        assert str(position) == GTIDS
        assert where == f"{dump}: in its last lines"
    with pytest.raises(NoPosition, match="it is not whole"):
        dump_position(written(dump, text[: -len(END)], packed=packed))
    packed_dump = gzip.compress(text.encode())
    dump.write_bytes(packed_dump[:-20])
    with pytest.raises(NoPosition, match="cannot be unpacked"):
        dump_position(dump)


@pytest.mark.parametrize("kind", AT_ONCE)
def test_a_dump_with_the_position_in_its_head(tmp_path: Path, kind: str) -> None:
    dump = written(tmp_path / "dump.sql", HEAD + AT_ONCE[kind].format(GTIDS) + BODY)
    position, where = dump_position(dump)
    assert str(position) == GTIDS
    assert where == f"{dump}: in its first lines"


def test_a_dump_that_does_not_tell(tmp_path: Path) -> None:
    """Only a file and a position, or neither; and what is in tables and routines is not taken for it."""
    path = tmp_path / "dump.sql"
    begin, end = DEFERRED["--master-data"]
    for text in (
        HEAD + FILE_POSITION + BODY + END,
        HEAD + begin + BODY + end.format("") + END,
        HEAD + begin + BODY + END,
    ):
        with pytest.raises(NoPosition, match=r"SELECT BINLOG_GTID_POS\('m-bin.000002', 617\)"):
            dump_position(written(path, text))
    for text in (HEAD + BODY + END, "", "\0" * 100):
        with pytest.raises(NoPosition, match="has no position of a binlog"):
            dump_position(written(path, text))
    routine = (
        "DELIMITER ;;\nCREATE PROCEDURE p()\nBEGIN\n"
        + end.format("9-9-9")
        + "END ;;\nDELIMITER ;\n/*!50003 SET sql_mode = @saved_sql_mode */ ;\n"
    )
    whole = HEAD + begin + BODY + routine + end.format(GTIDS) + END
    assert str(dump_position(written(path, whole))[0]) == GTIDS
    with pytest.raises(NoPosition, match="BINLOG_GTID_POS"):
        dump_position(written(path, HEAD + begin + BODY + routine + END))


def test_a_dump_with_two_positions(tmp_path: Path) -> None:
    (one, one_end), (two, two_end) = DEFERRED["--master-data"], DEFERRED["--dump-slave=2"]
    text = HEAD + one + two + BODY + one_end.format("0-1-5") + two_end.format("0-1-4") + END
    with pytest.raises(NoPosition, match="has two positions, '0-1-5' and '0-1-4'"):
        dump_position(written(tmp_path / "dump.sql", text))
    same = text.replace("0-1-4", "0-1-5")
    assert str(dump_position(written(tmp_path / "dump.sql", same))[0]) == "0-1-5"
    with pytest.raises(ServerError, match=r"^1941 "):
        dump_position(written(tmp_path / "dump.sql", text.replace("0-1-4", "0-1")))


SLAVE_INFO = "SET GLOBAL gtid_slave_pos = '{}';\nCHANGE MASTER TO master_use_gtid = slave_pos;\n"


@pytest.mark.parametrize("prefix", ["mariadb_backup", "xtrabackup"])
def test_a_backup(tmp_path: Path, prefix: str) -> None:
    binlog, slave = tmp_path / f"{prefix}_binlog_info", tmp_path / f"{prefix}_slave_info"
    with pytest.raises(NoPosition, match="holds no mariadb_backup_binlog_info or"):
        backup_position(tmp_path)
    binlog.write_text(f"m-bin.000002\t617\t{GTIDS}\n")
    assert backup_position(tmp_path)[1] == f"{tmp_path}: in {binlog.name}"
    assert str(backup_position(tmp_path)[0]) == GTIDS
    slave.write_text(SLAVE_INFO.format("0-21002-4,3-21002-1"))  # another order
    assert str(backup_position(tmp_path)[0]) == "0-21002-4,3-21002-1"
    slave.write_text(SLAVE_INFO.format("0-21002-3"))
    with pytest.raises(NoPosition, match=r"two positions.*--gtid-slave-pos"):
        backup_position(tmp_path)
    binlog.unlink()
    assert str(backup_position(tmp_path)[0]) == "0-21002-3"
    slave.write_text("CHANGE MASTER TO MASTER_LOG_FILE='m-bin.000003', MASTER_LOG_POS=4;\n")
    with pytest.raises(NoPosition, match=r"BINLOG_GTID_POS\('m-bin.000003', 4\)"):
        backup_position(tmp_path)
    slave.unlink()
    for text in ("m-bin.000002\t617\n", "m-bin.000002\t617\t\n"):
        binlog.write_text(text)
        with pytest.raises(NoPosition, match=r"BINLOG_GTID_POS\('m-bin.000002', 617\)"):
            backup_position(tmp_path)
    binlog.write_text("nonsense")
    with pytest.raises(NoPosition, match="no position of a binlog"):
        backup_position(tmp_path)


def test_cut_at_each_byte(tmp_path: Path) -> None:
    """Whatever is missing at the end: the position, or none; never another one."""
    begin, end = DEFERRED["--master-data --gtid"]
    late = HEAD + begin + BODY + end.format(GTIDS) + END
    early = HEAD + AT_ONCE["--master-data=2"].format(GTIDS) + BODY
    for text in (late, early):
        found = [
            _position_or_none(dump_position, tmp_path / "dump", text[:n]) for n in range(len(text))
        ]
        assert set(found) == {None, GTIDS}
    backup = tmp_path / "xtrabackup_binlog_info"
    info = f"m-bin.000002\t617\t{GTIDS}\n"
    for size in range(len(info)):
        assert (
            _position_or_none(lambda path: backup_position(path.parent), backup, info[:size])
            is None
        )
    backup.unlink()
    slave = tmp_path / "xtrabackup_slave_info"
    info = SLAVE_INFO.format(GTIDS)
    found = [
        _position_or_none(lambda path: backup_position(path.parent), slave, info[:size])
        for size in range(len(info))
    ]
    assert set(found) == {None, GTIDS}


def _position_or_none(
    read: Callable[[Path], tuple[SlavePosition, str]], path: Path, text: str
) -> str | None:
    try:
        return str(read(written(path, text))[0])
    except NoPosition:
        return None


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.binary(max_size=400), at=st.integers(0, 900), packed=st.booleans())
def test_noise(tmp_path: Path, data: bytes, at: int, packed: bool) -> None:
    """Anything else is an error of ours."""
    begin, end = DEFERRED["--master-data --gtid"]
    text = (HEAD + begin + end.format(GTIDS) + END).encode()
    text = text[:at] + data + text[at + len(data) :]
    path = tmp_path / "dump.sql"
    path.write_bytes(gzip.compress(text) if packed else text)
    with contextlib.suppress(NoPosition, ServerError):
        dump_position(path)
    path.write_bytes(b"\x1f\x8b" + data)
    with contextlib.suppress(NoPosition, ServerError):
        dump_position(path)
    (tmp_path / "xtrabackup_binlog_info").write_bytes(data)
    with contextlib.suppress(NoPosition, ServerError):
        backup_position(tmp_path)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Files take their space at once: small ones."""
    path = tmp_path / "server.toml"
    path.write_text("max_binlog_size = 65536\ninnodb_log_file_size = 4194304\n")
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def opened(store: Path) -> StoreDirectory:
    return StoreDirectory(store, small(4, innodb_log_file_size=4 << 20))


def seed(store: Path, config: Path, *options: str | Path) -> Ran:
    return run("seed", "--directory", store, "--config", config, *options)


def test_seed(store: Path, config: Path, tmp_path: Path) -> None:
    state = "0-2-3,0-1-7,5-1-1"
    for options, position in (
        (("--gtid-slave-pos", "0-1-7,5-1-1"), "0-1-7,5-1-1"),
        (("--gtid-binlog-state", state), state),
    ):
        path = store / options[0]
        ran = seed(path, config, *options)
        assert (ran.code, ran.lines) == (0, ["the store begins at gtid_slave_pos '0-1-7,5-1-1'"])
        again = seed(path, config, *options)
        assert again.lines == ["the store was already at gtid_slave_pos '0-1-7,5-1-1'"]
        directory = opened(path)
        try:
            assert str(directory.engine.binlog_state()) == position
            with pytest.raises(PositionPurged):
                directory.engine.find_start(BinlogState([Gtid(0, 1, 6)]).position())
        finally:
            directory.close()
    dump = written(tmp_path / "dump.sql", HEAD + AT_ONCE["--master-data --gtid"].format(GTIDS))
    ran = seed(store / "dump", config, "--from-dump", dump)
    assert ran.lines == [
        f"{dump}: in its first lines",
        f"the store begins at gtid_slave_pos '{GTIDS}'",
    ]


def test_not_into_a_store_that_is_elsewhere(store: Path, config: Path) -> None:
    directory = opened(store)
    groups.append_all(directory.engine, groups.simple(3))
    directory.close()
    ran = seed(store, config, "--gtid-slave-pos", "0-1-2")
    assert ran.code == 1
    assert "the store is at '0-1-3' already" in ran.err
    assert "RESET MASTER" in ran.err
    assert seed(store, config, "--gtid-slave-pos", "0-1-3").code == 0
    directory = opened(store)
    try:
        ran = seed(store, config, "--gtid-slave-pos", "0-1-3")
    finally:
        directory.close()
    assert (ran.code, "in use by another process" in ran.err) == (1, True)


def test_wrong_use(store: Path, config: Path, tmp_path: Path) -> None:
    for options, code, said in (
        (("--gtid-slave-pos", "0-1"), 2, "'0-1' is no GTID position such as 0-1-4711"),
        (("--gtid-slave-pos", "0-1-2,0-1-3"), 2, "conflict (duplicate domain id 0)"),
        (("--gtid-slave-pos", ""), 1, "a store begins there by itself"),
        (("--from-dump", tmp_path / "none"), 1, f"there is no {tmp_path}/none"),
        (("--from-backup", tmp_path / "none"), 1, "there is no "),
    ):
        ran = seed(store, config, *options)
        assert ran.code == code, ran
        assert said in ran.err
    assert not store.exists()
