"""SQL about upstreams: what it says as values, and that no odd text does harm."""

from __future__ import annotations

from typing import Any

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.sql.tokens import first_words
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.sql.parser import parse
from binlog_server.sql.replication_sql import (
    REPLICATION,
    ChangeMaster,
    ResetSlave,
    StartAllSlaves,
    StartSlave,
    StopAllSlaves,
    StopSlave,
    Until,
)

BOTH = frozenset({"IO_THREAD", "SQL_THREAD"})

STATEMENTS: dict[str, Any] = {
    "START SLAVE": StartSlave(None),
    "start replica;": StartSlave(None),
    "START SLAVE 'x'": StartSlave("x"),
    "START SLAVE ''": StartSlave(""),
    "START SLAVE FOR CHANNEL 'x'": StartSlave("x"),
    "START SLAVE 'it''s' IO_THREAD, SQL_THREAD": StartSlave("it's", BOTH),
    "START SLAVE sql_thread": StartSlave(None, frozenset({"SQL_THREAD"})),
    "START SLAVE UNTIL master_gtid_pos='0-1-2'": StartSlave(None, frozenset(), Until.GTID, "0-1-2"),
    "START SLAVE 'x' UNTIL SQL_AFTER_GTIDS = '' FOR CHANNEL 'y'": 1210,
    "START SLAVE UNTIL SQL_BEFORE_GTIDS='0-1-2'": StartSlave(None, until=Until.OTHER),
    "START SLAVE UNTIL MASTER_LOG_FILE='f', MASTER_LOG_POS=4": StartSlave(None, until=Until.OTHER),
    "START SLAVE UNTIL RELAY_LOG_POS=4, RELAY_LOG_FILE='f'": StartSlave(None, until=Until.OTHER),
    "START SLAVE UNTIL MASTER_LOG_FILE='f'": StartSlave(None, until=Until.HALF),
    "START SLAVE UNTIL MASTER_LOG_FILE='f', RELAY_LOG_POS=4": StartSlave(None, until=Until.HALF),
    "START SLAVE UNTIL MASTER_LOG_FILE='f', MASTER_LOG_POS=4, RELAY_LOG_POS=4": StartSlave(
        None, until=Until.HALF
    ),
    "START ALL SLAVES": StartAllSlaves(),
    "START ALL REPLICAS": StartAllSlaves(),
    "/* now */ STOP SLAVE": StopSlave(None),
    "/*!100000 STOP SLAVE 'x' */": StopSlave("x"),
    "-- now\nSTOP REPLICA IO_THREAD": StopSlave(None, frozenset({"IO_THREAD"})),
    "STOP ALL SLAVES": StopAllSlaves(),
    "RESET SLAVE": ResetSlave(None),
    "RESET REPLICA 'x' ALL": ResetSlave("x", everything=True),
    "RESET SLAVE ALL FOR CHANNEL 'x'": ResetSlave("x", everything=True),
    "CHANGE MASTER TO MASTER_PORT=1": ChangeMaster(None, {"port": 1}),
    "CHANGE MASTER TO": 1064,
    "CHANGE MASTER TO MASTER_PORT='1'": 1064,
    "CHANGE MASTER TO MASTER_HOST=h": 1064,
    "CHANGE MASTER TO MASTER_PORT=1,": 1064,
    "CHANGE MASTER TO MASTER_SSL=on": 1064,
    "CHANGE MASTER TO MASTER_HEARTBEAT_PERIOD=-1": 1064,
    "CHANGE MASTER x TO MASTER_PORT=1": 1064,
    "CHANGE MASTER TO MASTER_RETRY_COUNT=1": 1064,
    f"CHANGE MASTER TO MASTER_PORT={'1' * 21}": 1064,
    f"CHANGE MASTER TO MASTER_HEARTBEAT_PERIOD={'1' * 400}": 1064,
    "START SLAVES": 1064,
    "START SLAVE x": 1064,
    "START SLAVE IO_THREAD 'x'": 1064,
    "STOP SLAVE UNTIL master_gtid_pos=''": 1064,
    "RESET SLAVES": 1064,
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements(text: str) -> None:
    expected = STATEMENTS[text]
    if isinstance(expected, int):
        with pytest.raises(ServerError) as error:
            parse(text)
        assert error.value.errno == expected
    else:
        assert parse(text) == expected


def test_every_option() -> None:
    statement = parse(
        "CHANGE MASTER 'n' TO MASTER_HOST='h', master_port=1, MASTER_USER=\"u\", MASTER_PASSWORD='p', "
        "MASTER_PASSWORD_FILE='f', MASTER_PASSWORD_ENV='e', MASTER_CONNECT_RETRY=2, MASTER_HEARTBEAT_PERIOD=.5, "
        "MASTER_SSL=1, MASTER_SSL_VERIFY_SERVER_CERT=0, MASTER_SSL_CA='ca', MASTER_SSL_CAPATH='cap', "
        "MASTER_SSL_CERT='c', MASTER_SSL_KEY='k', MASTER_SSL_CRL='crl', MASTER_SSL_CRLPATH='crlp', "
        "MASTER_SSL_CIPHER='x', MASTER_USE_GTID=replica_pos, MASTER_DELAY=0, MASTER_DEMOTE_TO_SLAVE=1, "
        "MASTER_LOG_FILE='m', MASTER_LOG_POS=4, RELAY_LOG_FILE='r', RELAY_LOG_POS=5, "
        "DO_DOMAIN_IDS=(), IGNORE_DOMAIN_IDS=(1, 2), IGNORE_SERVER_IDS=(3), "
        "MASTER_CANDIDATES='db2:3307, db3', MASTER_CHECK_LAST_GROUP=0"
    )
    assert statement == ChangeMaster(
        "n",
        {
            "host": "h",
            "port": 1,
            "user": "u",
            "password": "p",
            "password_file": "f",
            "password_env": "e",
            "connect_retry": 2,
            "heartbeat_period": 0.5,
            "ssl": 1,
            "ssl_verify_server_cert": 0,
            "ssl_ca": "ca",
            "ssl_capath": "cap",
            "ssl_cert": "c",
            "ssl_key": "k",
            "ssl_crl": "crl",
            "ssl_crlpath": "crlp",
            "ssl_cipher": "x",
            "use_gtid": "slave_pos",
            "delay": 0,
            "demote_to_slave": 1,
            "log_file": "m",
            "log_pos": 4,
            "relay_log_file": "r",
            "relay_log_pos": 5,
            "do_domain_ids": (),
            "ignore_domain_ids": (1, 2),
            "ignore_server_ids": (3,),
            "candidates": "db2:3307, db3",
            "check_last_group": 0,
        },
    )


@pytest.mark.parametrize(
    "text",
    [
        "CHANGE MASTER TO MASTER_PASSWORD='hidden' nonsense",
        "CHANGE MASTER TO MASTER_PASSWORD='hidden",
        "CHANGE MASTER TO MASTER_PASSWORD=\"hidden\" 'hidden'",
        "CHANGE MASTER TO MASTER_PASSWORD 'hidden'",
        "CHANGE MASTER TO MASTER_USER='x', 'hidden'",
        "CHANGE MASTER TO MASTER_PASSWORD='it''s hidden' x",
    ],
)
def test_no_password_in_errors(text: str) -> None:
    with pytest.raises(ServerError) as error:
        parse(text)
    assert "hidden" not in str(error.value)


def test_no_password_in_values() -> None:
    assert "hidden" not in repr(parse("CHANGE MASTER TO MASTER_PASSWORD='hidden'"))


PARTS = (
    "' \" ( ) , = ; # -- /* */ /*! \\ ALL SLAVE REPLICAS TO UNTIL FOR CHANNEL IO_THREAD 'x' 1 1.5 é"
)
OPTIONS = "MASTER_HOST MASTER_SSL DO_DOMAIN_IDS MASTER_HEARTBEAT_PERIOD MASTER_USE_GTID SLAVE_POS"
WORDS = st.sampled_from([*PARTS.split(" "), *OPTIONS.split(" "), " ", "\n"])


@given(st.sampled_from(["CHANGE MASTER", "START", "STOP", "RESET"]), st.lists(WORDS, max_size=30))
def test_any_text_is_a_statement_or_an_error(first: str, words: list[str]) -> None:
    text = f"{first} {' '.join(words)}"
    try:
        parse(text)
    except ServerError as error:
        assert error.errno in (1064, 1210)  # noqa: PT017 - either outcome is fine


@pytest.mark.parametrize(
    "text",
    [
        " " * 60_000 + "x",
        "/*" * 30_000,
        "/**/" * 15_000 + "x",
        "#\n" * 30_000 + "x",
        "-- \n" * 15_000 + "CHANGE",
        "/*!" * 20_000,
        "CHANGE MASTER TO MASTER_HOST='" + "\\'" * 30_000,
        "CHANGE MASTER TO DO_DOMAIN_IDS=(" + "1," * 1800,
    ],
)
def test_long_texts_take_no_long_time(text: str) -> None:
    """In proportion to their length: a pattern that tries all ways would take years, and the test's limit ends it."""
    REPLICATION.is_begun_by(first_words(text))
    with pytest.raises(ServerError):
        parse(text)
