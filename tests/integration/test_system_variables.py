"""Every system variable of a real 11.8, asked and SET on both servers: the same values, errors and warnings.

What differs stands in `DIFFERENT`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pymysql
import pytest
from pymysql.cursors import Cursor

from binlog_server.settings.option_kinds import Decimals, Flags, Number, SetOfWords, Words
from binlog_server.sql.recorded_variables import RECORDED, Reach, Recorded
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.oracle import require_same

# The real server waits for itself for ever; or ends.
UNSAFE: Final = {
    ("gtid_binlog_state", "@@global.gtid_binlog_state"),
    ("innodb_buffer_pool_size", "DEFAULT"),
}
PARTS: Final = 3
NAMES: Final = "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci"
KEPT_NOTE: Final = "is kept and shown"

PATHS: Final = "files and names of that machine: here there are none, or others"
RUN: Final = "the options of that run, and what the machine has"
TRUE: Final = "it says what is true here"
MODES: Final = "all replicas know the collation"
FILE: Final = "it is changed in the configuration file"
REFUSED: Final = "it would promise what does not happen here"
TWICE: Final = "there the warning comes twice with SET STATEMENT"
LITTLE: Final = "a check or a warning of one variable alone, which means nothing here"
SCOPE: Final = "its scope there is neither the one nor the other"
LANGUAGE: Final = "errors in other languages"
DURABLE: Final = "a commit is durable here unless it is said otherwise; 11.8's is 0"
GALERA: Final = "checks of Galera, which is not there either"
# By what differs: SELECT, or SET of that scope.
_DIFFERENT: Final = (
    (
        PATHS,
        "GLOBAL SELECT",
        """
        general_log_file log_slow_query_file slow_query_log_file wsrep_node_name
    """,
    ),
    (
        PATHS,
        "SELECT",
        """
        aria_log_dir_path basedir character_sets_dir datadir ignore_db_dirs innodb_data_file_path
        innodb_temp_data_file_path lc_messages_dir log_bin_basename log_bin_index pid_file
        plugin_dir relay_log_info_file slave_load_tmpdir socket tmpdir wsrep_data_home_dir
    """,
    ),
    (
        DURABLE,
        "GLOBAL SELECT",
        """
        sync_binlog
    """,
    ),
    (
        RUN,
        "GLOBAL",
        """
        innodb_buffer_pool_size_auto_min
    """,
    ),
    (
        RUN,
        "GLOBAL SELECT",
        """
        innodb_buffer_pool_dump_at_shutdown innodb_buffer_pool_size key_buffer_size
        max_binlog_size max_connections tcp_keepalive_interval tcp_keepalive_probes
        tcp_keepalive_time thread_pool_size
    """,
    ),
    (
        RUN,
        "GLOBAL SELECT SESSION STATEMENT",
        """
        max_session_mem_used
    """,
    ),
    (
        RUN,
        "SELECT",
        """
        aria_pagecache_buffer_size back_log have_ssl host_cache_size innodb_autoextend_increment
        innodb_buffer_pool_load_at_startup innodb_fast_shutdown innodb_flush_log_at_trx_commit
        innodb_log_buffer_size innodb_undo_tablespaces open_files_limit port rand_seed1 rand_seed2
        report_host report_port server_uid skip_name_resolve sync_master_info sync_relay_log
        sync_relay_log_info table_open_cache_instances thread_cache_size warning_count
    """,
    ),
    (
        RUN,
        "SELECT SESSION",
        """
        pseudo_thread_id timestamp
    """,
    ),
    (
        TRUE,
        "GLOBAL SELECT",
        """
        binlog_checksum binlog_row_metadata
    """,
    ),
    (
        TRUE,
        "GLOBAL SELECT SESSION",
        """
        binlog_format
    """,
    ),
    (
        TRUE,
        "SELECT",
        """
        have_crypt have_dynamic_loading have_geometry have_profiling have_query_cache
        have_rtree_keys have_symlink license log_slave_updates ssl_ca ssl_cert ssl_key version
        version_comment version_compile_os version_malloc_library version_source_revision
        version_ssl_library wsrep_patch_version
    """,
    ),
    (
        TRUE,
        "SESSION STATEMENT",
        """
        binlog_row_image
    """,
    ),
    (
        MODES,
        "GLOBAL",
        """
        collation_server
    """,
    ),
    (
        MODES,
        "GLOBAL SELECT",
        """
        collation_connection
    """,
    ),
    (
        MODES,
        "GLOBAL SELECT SESSION",
        """
        collation_database
    """,
    ),
    (
        FILE,
        "GLOBAL",
        """
        gtid_domain_id
    """,
    ),
    (
        FILE,
        "GLOBAL SELECT SESSION",
        """
        innodb_log_file_size server_id slave_net_timeout
    """,
    ),
    (
        FILE,
        "GLOBAL SESSION",
        """
        binlog_cache_size binlog_stmt_cache_size innodb_flush_log_at_timeout
    """,
    ),
    (
        FILE,
        "GLOBAL SESSION STATEMENT",
        """
        net_buffer_length
    """,
    ),
    (
        REFUSED,
        "GLOBAL",
        """
        character_set_collations init_connect init_slave replicate_do_db replicate_do_table
        replicate_ignore_db replicate_ignore_table replicate_rewrite_db replicate_wild_do_table
        replicate_wild_ignore_table
    """,
    ),
    (
        TWICE,
        "STATEMENT",
        """
        big_tables keep_files_on_create log_slow_admin_statements old
        optimizer_adjust_secondary_key_costs sql_notes tx_isolation tx_read_only
    """,
    ),
    (
        LITTLE,
        "GLOBAL",
        """
        ft_boolean_syntax gtid_binlog_state gtid_pos_auto_engines innodb_ft_aux_table
        innodb_ft_server_stopword_table innodb_io_capacity_max innodb_lru_flush_size
        innodb_max_purge_lag_wait innodb_monitor_disable innodb_monitor_enable
        innodb_monitor_reset innodb_monitor_reset_all max_allowed_packet max_user_connections
        proxy_protocol_networks query_cache_min_res_unit sql_big_selects
    """,
    ),
    (
        LITTLE,
        "GLOBAL SESSION",
        """
        innodb_ft_user_stopword_table innodb_tmpdir system_versioning_asof
    """,
    ),
    (
        LITTLE,
        "SESSION",
        """
        explicit_defaults_for_timestamp innodb_default_encryption_key_id max_error_count new_mode
        pseudo_slave_mode query_cache_type
    """,
    ),
    (
        LITTLE,
        "SESSION STATEMENT",
        """
        alter_algorithm max_delayed_threads max_insert_delayed_threads old_mode optimizer_switch
    """,
    ),
    (
        SCOPE,
        "GLOBAL",
        """
        sql_log_bin tcp_nodelay
    """,
    ),
    (
        SCOPE,
        "SELECT SESSION STATEMENT",
        """
        sql_slave_skip_counter
    """,
    ),
    (
        LANGUAGE,
        "SESSION",
        """
        lc_messages
    """,
    ),
    (
        GALERA,
        "GLOBAL",
        """
        wsrep_dbug_option wsrep_desync wsrep_max_ws_size wsrep_node_incoming_address
        wsrep_provider_options wsrep_slave_threads wsrep_sst_auth wsrep_sst_receive_address
        wsrep_start_position
    """,
    ),
    (
        GALERA,
        "GLOBAL SESSION STATEMENT",
        """
        wsrep_trx_fragment_size
    """,
    ),
    (
        GALERA,
        "SESSION STATEMENT",
        """
        wsrep_gtid_seq_no wsrep_on wsrep_trx_fragment_unit
    """,
    ),
)
DIFFERENT: Final = {name: what for _, what, names in _DIFFERENT for name in names.split()}


def values_of(facts: Recorded) -> Iterator[str]:
    """What SET is given: right and wrong values of each type, and those at the limits."""
    yield from ("NULL", "''", "'nonsense'", "1.5", "-1", "1", "ON", "'off'")
    match facts.kind:
        case Number(low, high) | Decimals(low, high):
            yield from map(str, (low, low - 1, high, high + 1, low + 1, 12345))
        case Words(words) | SetOfWords(words):
            yield from (
                f"'{words[0].lower()}'",
                f"'{words[-1]}'",
                str(len(words)),
                str(2 ** len(words)),
            )
            yield from (f"'{words[-1]},{words[0].upper()}'", f"'{words[0]},nonsense'", "','")
        case Flags(words):
            yield from (
                f"'{words[0]}=off'",
                f"'default,{words[0]}=on'",
                f"'{words[0]}=x'",
                "'default'",
            )


def asked(facts: Recorded) -> Iterator[tuple[str, str]]:
    """Statements, each with the one that asks for its effect."""
    name = facts.name
    for scope in ("", "global.", "session."):
        yield f"SELECT @@{scope}{name}", ""
    if facts.reach is not Reach.GLOBAL:
        for value in (*values_of(facts), f"@@{name}", "DEFAULT"):
            yield f"SET SESSION {name} = {value}", f"SELECT @@session.{name}"
        yield f"SET STATEMENT {name} = 1 FOR SELECT 1", ""
    else:
        yield f"SET SESSION {name} = 1", ""
    for value in ("NULL", "1.5", "'nonsense'", "-1", f"@@global.{name}", "DEFAULT"):
        if (name, value) in UNSAFE:
            continue
        yield f"SET GLOBAL {name} = {value}", f"SELECT @@global.{name}"


def kinds(found: Sequence[Any]) -> str:
    """Of statements: SELECT, SESSION, GLOBAL, STATEMENT (SET of that scope), those that are there."""
    said = [statement.split()[:2] for statement, *_ in found]
    words = {verb if verb == "SELECT" else scope for verb, scope in said}
    return " ".join(sorted(words))


def answer(cursor: Any, statement: str, effect: str) -> Any:
    """The rows or the error, and the warnings; then the effect."""
    try:
        cursor.execute(statement)
        rows = cursor.fetchall()
        told: Sequence[Any] = ()
        if cursor._result.warning_count:
            cursor.execute("SHOW WARNINGS")
            told = [row for row in cursor.fetchall() if KEPT_NOTE not in row[2]]
        if effect:
            cursor.execute(effect)
            rows = cursor.fetchall()
        return rows, list(told)
    except pymysql.Error as error:
        if error.args[0] in (2013, 2006, 0):
            raise AssertionError(
                statement, cursor.connection.port, cursor.connection.server_version
            ) from error
        return error.args[0], str(error.args[1]).lower()


@pytest.mark.by_turns(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(600)
def test_like_a_real_server(
    part: int, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """Some that follow each other: what is said of one may show in the next."""
    names = sorted(RECORDED)[part * len(RECORDED) // PARTS :][: -(-len(RECORDED) // PARTS)]
    real = make_upstream("--max-allowed-packet=16M", "--report-host=db1", version="11.8")
    ours = binlog_server(users={"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}})
    found: dict[str, list[Any]] = {}
    with real.connect(read_timeout=30) as there, ours.connect(read_timeout=30) as here:
        cursors = there.cursor(Cursor), here.cursor(Cursor)
        for cursor in cursors:
            cursor.execute(NAMES)
        for facts in map(RECORDED.__getitem__, names):
            for statement, effect in asked(facts) if not facts.is_old else ():
                theirs, told = (answer(cursor, statement, effect) for cursor in cursors)
                if theirs != told:
                    found.setdefault(facts.name, []).append((statement, theirs, told))
    different = {name: kinds(statements) for name, statements in found.items()}
    expected = {name: what for name, what in DIFFERENT.items() if name in names}
    if different != expected:
        print({n: found.get(n) for n, k in different.items() if expected.get(n) != k})
    require_same(real.value("SELECT VERSION()"), different, expected)
