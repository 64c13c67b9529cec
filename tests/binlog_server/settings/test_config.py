"""Options: what is taken, from where, and one clear error for everything else."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from binlog_server.accounts.users import Account
from binlog_server.settings.config import Config, ConfigError, doubts, load, parse_listen
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import Password

DIRECTORY = {"binlog_directory": "/d"}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


def test_defaults() -> None:
    config = load(None, DIRECTORY)
    assert config == Config(Path("/d"))
    assert (config.listen_host, config.listen_port, config.upstream) == ("127.0.0.1", 3306, {})


def test_precedence(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'binlog_directory="/file"\nserver_id=5\nlisten="file:1"\nmax_connections=17\n'
        'log_level="DEBUG"\nupstream="mariadb://u:p@file"\n[users]\nrepl="x"',
    )
    config = load(
        path,
        {
            "binlog_directory": None,
            "server_id": 6,
            "listen": ":2",
            "upstream": "mariadb://u:p@line",
            "log_level": None,
        },
    )
    assert config == Config(
        Path("/file"),
        listen_host="",
        listen_port=2,
        server_id=6,
        max_connections=17,
        log_level="DEBUG",
        upstream={"": MasterInfo.from_url("mariadb://u:p@line")},
        users={"repl": "x"},
    )


def test_options_of_a_mariadb_that_mean_nothing_here(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'log_bin=true\nbinlog_storage_engine="innodb"\nencrypt_binlog=0\ntc_heuristic_recover="OFF"\n'
        'init_rpl_role="MASTER"\nrpl_semi_sync_master_enabled=false\nwsrep_on="OFF"\n'
        'rpl_semi_sync_master_wait_point="AFTER_COMMIT"\nsync_binlog=1',
    )
    expected = Config(Path("/d"), ignored_options=("sync_binlog",), binlog_storage_engine="innodb")
    assert load(path, DIRECTORY) == expected
    # The directory may hold traditional files.
    of_files = written(tmp_path, "sync_binlog=0")
    assert load(of_files, DIRECTORY) == Config(Path("/d"), sync_binlog=0)


def test_sizes_have_units(tmp_path: Path) -> None:
    text = (
        'max_binlog_size="256M"\nmax_binlog_total_size="3g"\nmax_connections="1K"\nreport_host="1G"'
    )
    config = load(written(tmp_path, text), DIRECTORY)
    assert (config.max_binlog_size, config.max_binlog_total_size) == (256 << 20, 3 << 30)
    assert (config.max_connections, config.report_host) == (1024, "1G")


def test_limits_of_replicas_have_units(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[users]\na = {password = "x", max_lag_bytes = "2G"}\n')
    account = load(file, {"binlog_directory": "/d"}).users["a"]
    assert isinstance(account, Account)
    assert account.replica.max_lag_bytes == 2 << 30


def test_a_value_of_the_command_line_is_not_said_to_be_in_the_file(tmp_path: Path) -> None:
    (file := tmp_path / "c.toml").write_text("server_id = 1\n")
    with pytest.raises(ConfigError, match=r"server_id: 0 is not between 1 and 4294967295$"):
        load(file, {"binlog_directory": "/d", "server_id": 0})


def test_what_is_probably_not_meant() -> None:
    assert doubts(Config(Path("/d"), max_binlog_total_size=2 << 30, expire_logs_days=1.5)) == []
    (small,) = doubts(Config(Path("/d"), max_binlog_total_size=(2 << 30) - 1))
    assert small.startswith("max_binlog_total_size = 2147483647 cannot be kept")
    files = Config(Path("/d"), max_binlog_total_size=1, binlog_storage_engine="")
    assert doubts(files) == []
    many = Config(Path("/d"), slave_connections_needed_for_purge=11, max_connections=10)
    assert doubts(many) == []
    (never,) = doubts(dataclasses.replace(many, binlog_expire_logs_seconds=1))
    assert never.startswith("no file is ever purged")
    assert doubts(Config(Path("/d"), ignored_options=("wsrep_on",)))[0].startswith("wsrep_on has")


WRONG_IN_FILE = [
    ('log_bin="mysql-bin"', "log_bin: log_bin=mysql-bin is not available when --binlog-storage"),
    ("log_bin=false", "log_bin: log_bin=OFF is not available"),
    (r'log_bin="a\u001eb"', r"log_bin: log_bin='a.x1eb' is not available"),
    ('binlog_storage_engine="rocksdb"', "binlog_storage_engine: binlog_storage_engine=rocksdb"),
    ('tc_heuristic_recover="COMMIT"', "tc_heuristic_recover: tc_heuristic_recover=COMMIT"),
    ("encrypt_binlog=true", "encrypt the disk under binlog_directory"),
    ('sync_binlog=-1\nbinlog_storage_engine=""', "sync_binlog: -1 is not between 0 and"),
    ('encrypt_binlog=1\nbinlog_storage_engine=""', "encrypt_binlog: 1 is neither true nor false"),
    ("file_key_management_filename=1", "file_key_management_filename: 1 is no text"),
    ("file_key_management_filekey=true", "file_key_management_filekey: True is no text"),
    (
        'file_key_management_encryption_algorithm="aes_gcm"',
        "file_key_management_encryption_algorithm: 'aes_gcm' is none of aes_cbc, aes_ctr",
    ),
    ("binlog_gtid_index=1", "binlog_gtid_index: 1 is neither true nor false"),
    ("binlog_gtid_index_page_size=63", "63 is not between 64 and 16777216"),
    ("binlog_gtid_index_span_min=0", "0 is not between 1 and 1073741824"),
    ('init_rpl_role="SLAVE"', "init_rpl_role: init_rpl_role=SLAVE is not available"),
    ("rpl_semi_sync_master_enabled=1", "rpl_semi_sync_master_enabled: 1 is neither true nor false"),
    ("rpl_semi_sync_master_wait_for_slave_count=0", "0 is not between 1 and 65535"),
    ("rpl_semi_sync_master_timeout=-1", "-1 is not between 0 and 18446744073709551615"),
    ("rpl_semi_sync_master_wait_no_slave='x'", "'x' is neither true nor false"),
    ("rpl_semi_sync_slave_enabled=1", "rpl_semi_sync_slave_enabled: 1 is neither true nor false"),
    ("rpl_semi_sync_slave_wait_for_slave_count=-1", "-1 is not between 0 and 65535"),
    ('rpl_semi_sync_master_wait_point="AFTER_SYNC"', "or write AFTER_COMMIT"),
    ("ignored_options=[]", "unknown option 'ignored_options'"),
    ('metrics_token="short"', "metrics_token: it has 16 printable ASCII characters or more"),
    ('metrics_token="0123456789abcde\u00e9"', "metrics_token: it has 16 printable ASCII"),
    ("server_id=0", r"server_id: 0 is not between 1 and 4294967295 in .*\.toml"),
    ('listen="3306"', r"listen: '3306' is not HOST:PORT in .*\.toml"),
    ('ssl_cert="x"', r"ssl_cert and ssl_key: give both, .* in .*\.toml"),
    ('[users]\na={pasword="x"}', "users: a: unknown option 'pasword': did you mean 'password'"),
    ('[users]\na={password="x", max_lag_bytes="1X"}', "max_lag_bytes is a number, not '1X'"),
    ("max_binlogsize=1", "unknown option 'max_binlogsize' in .*: did you mean 'max_binlog_size'?"),
    (
        'max_binlog_size="1X"',
        "max_binlog_size: '1X' is no whole number, nor one with a unit, such as 64K, 16M or 1G",
    ),
    ('max_binlog_size="1T"', "max_binlog_size: 1099511627776 is not between"),
    ('max_binlog_size="1G "', "max_binlog_size: '1G ' is no whole number"),
    ('log_level="1G"', "log_level: '1G' is none of"),
    ("wsrep_on=true", "follow one of its nodes as upstream"),
    ("server_id='x'", "server_id: 'x' is no whole number"),
    ("slave_compressed_protocol=1", "slave_compressed_protocol: 1 is neither true nor false"),
    ("skip_slave_start=1", "skip_slave_start: 1 is neither true nor false"),
    ("gtid_ignore_duplicates='ON'", "gtid_ignore_duplicates: 'ON' is neither true nor false"),
    ("master_info_key_file=1", "master_info_key_file: 1 is no text"),
    ("[upstream]\nuser='u'", "upstream: host and user are needed"),
    (
        "[upstream]\nhost='h'\nuser='u'\nhots='h'",
        "upstream: unknown option 'hots': did you mean 'host'?",
    ),
    ("[upstream]\nhost='h'\nuser='u'\nport='1'", "upstream: port: '1' is no whole number"),
    ("[upstream]\nhost='h'\nuser='u'\nport=0", "upstream: port 0 is not between 1 and 65535"),
    ("[upstream]\nhost='h'\nuser='u'\npassword=12", "upstream: password: it is no text"),
    (
        "[upstream]\nhost='h'\nuser='u'\npassword='x'\npassword_env='X'",
        "upstream: password and password_env: give one of them",
    ),
    (
        "[upstream.a]\nhost='h'\nuser='u'\ndo_domain_ids=[1]\nignore_domain_ids=[2]",
        "upstream: a: DO_DOMAIN_IDS and IGNORE_DOMAIN_IDS cannot both",
    ),
    (
        "[upstream.a]\nhost='h'\nuser='u'\ndo_domain_ids=['1']",
        "do_domain_ids: write a list of numb",
    ),
    ("[upstream.a]\nhost='h'\nuser='u'\ncandidates='b'", "candidates: 'b' is no list"),
    (
        "[upstream.a]\nhost='h'\nuser='u'\ncandidates=[3306]",
        "candidates: write a list of addresses",
    ),
    ("[upstream.a]\nhost='h'\nuser='u'\ncandidates=['b:0']", "a: port 0 is not between"),
    ("[upstream.a]\nhost='h'\nuser='u'\ndo_domain_ids=[-1]", "an id is between 0 and 4294967295"),
    (
        "[upstream.a]\nhost='h'\nuser='u'\nheartbeat_period=-1",
        "heartbeat_period: -1.0 is neither 0",
    ),
    ("[upstream.a]\nhost='h'\nuser='u'\nssl_key='k'", "MASTER_SSL_KEY needs MASTER_SSL_CERT"),
    ("[upstream.a]\nhost='h'\nuser='u'\n[upstream.A]\nhost='h'\nuser='u'", "'A' is there twice"),
    ("server_id=true", "server_id: True is no whole number"),
    ("server_id=0", "server_id: 0 is not between 1 and 4294967295"),
    ("server_id=4294967296", "server_id: 4294967296 is not between"),
    ("server_id=-1", "server_id: -1 is not between"),
    ("server_id=1.5", "server_id: 1.5 is no whole number"),
    ("gtid_domain_id=4294967296", "gtid_domain_id: "),
    ("listen='h:1'\nmetrics_listen='h:1'", "metrics_listen: it is the same address as listen"),
    ("listen='3306'", "listen: '3306' is not HOST:PORT"),
    ("listen='host:port'", "listen: 'host:port' is not HOST:PORT"),
    ("listen='h:1,g:2'", "listen: 'h:1,g:2' is not HOST:PORT"),
    ("listen=3306", "listen: '3306' is not HOST:PORT"),
    ("listen='h:65536'", "listen: port 65536 is not between 0 and 65535"),
    ("metrics_listen='9104'", "metrics_listen: '9104' is not HOST:PORT"),
    ("metrics_listen='h:65536'", "metrics_listen: port 65536 is not between 0 and 65535"),
    ("metrics_listen=9104", "metrics_listen: 9104 is no text"),
    ("metrics_ssl=true", "metrics_ssl: it takes the certificate of the server"),
    (
        "ssl=false\nssl_cert='c'\nssl_key='k'\nmetrics_ssl=true",
        "metrics_ssl: it takes .* leave ssl on",
    ),
    ("metrics_ssl_ca='ca'", "metrics_ssl_ca: without metrics_ssl nobody could"),
    ("log_format='xml'", "log_format: 'xml' is none of text, json"),
    ("listen_host=5", "listen_host: 5 is no text"),
    ('listen_host="a..b"', "listen_host: 'a..b' cannot be the name of a machine"),
    (f"metrics_listen='{'h' * 64}:1'", "metrics_listen: 'h*' cannot be the name of a machine"),
    ('binlog_archive_directory="a\\u0000"', "binlog_archive_directory: .* holds a zero byte"),
    ('binlog_directory="\\u0000"', "binlog_directory: .* holds a zero byte"),
    ("upstream='h:3306'", "upstream: "),
    ("upstream=5", "upstream: write mariadb://user:password@host:port, or tables"),
    ("binlog_archive_directory=5", "binlog_archive_directory: 5 is no text"),
    ("binlog_archive_url=5", "binlog_archive_url: 5 is no text"),
    ("binlog_archive_cache_size=-1", "binlog_archive_cache_size: -1 is not between 0 and"),
    (
        "binlog_archive_encryption_key_id=-1",
        "binlog_archive_encryption_key_id: -1 is not between 0 and",
    ),
    (
        "binlog_archive_format='ibb'",
        "binlog_archive_format: 'ibb' is none of PARQUET, IBB",
    ),
    ("binlog_archive_interval=0", "binlog_archive_interval: 0 is not between 1 and 86400"),
    ("binlog_directory=5", "binlog_directory: 5 is no text"),
    ("max_binlog_size=1000", "max_binlog_size: 1000 is not between 4096 and 1073741824"),
    ("max_binlog_size=65535", "max_binlog_size must be between 65536 and 1073741824, not 65535"),
    ('binlog_storage_engine=""\nlog_bin="a/b"', "log_bin must be a file name without a folder"),
    ('binlog_storage_engine=""\nlog_bin=false', "log_bin: log_bin=OFF is not available"),
    ('binlog_storage_engine="innodb"\nlog_bin="bin"', "log_bin: log_bin=bin is not available"),
    ('binlog_storage_engine=""\nserver_version="11.8"', "server_version must begin with a version"),
    ("max_binlog_size=2147483648", "max_binlog_size: 2147483648 is not between"),
    ("max_binlog_size='1GB'", "max_binlog_size: '1GB' is no whole number"),
    ("innodb_binlog_state_interval=50000", "innodb_binlog_state_interval must be"),
    ("binlog_page_cache_size=-1", "binlog_page_cache_size: -1 is not between"),
    ("binlog_cache_size=100", "binlog_cache_size: 100 is not between"),
    ("binlog_stmt_cache_size='1MB'", "binlog_stmt_cache_size: '1MB' is no whole number"),
    (
        "binlog_large_commit_threshold=10485759",
        "binlog_large_commit_threshold: 10485759 is not between 10485760 and",
    ),
    ("max_binlog_total_size=-1", "max_binlog_total_size: -1 is not between"),
    ("max_binlog_total_size='1GB'", "max_binlog_total_size: '1GB' is no whole number"),
    (
        "binlog_expire_logs_seconds=-1",
        "binlog_expire_logs_seconds: -1 is not between 0 and 8553600",
    ),
    ("binlog_expire_logs_seconds=1.5", "binlog_expire_logs_seconds: 1.5 is no whole number"),
    ("expire_logs_days=99.1", "expire_logs_days: 99.1 is not between 0 and 99"),
    ("expire_logs_days=-1", "expire_logs_days: -1 is not between"),
    ("expire_logs_days='1'", "expire_logs_days: '1' is no number"),
    ("expire_logs_days=true", "expire_logs_days: True is no number"),
    ("binlog_scrub_rate=-1", "binlog_scrub_rate: -1 is not between 0 and"),
    ("binlog_scrub_interval=0", "binlog_scrub_interval: 0 is not between 1 and 31536000"),
    ("binlog_scrub_archive=1", "binlog_scrub_archive: 1 is neither true nor false"),
    ("replica_slot_seconds=-1", "replica_slot_seconds: -1 is not between 0 and 8553600"),
    ("replica_slot_bytes=-1", "replica_slot_bytes: -1 is not between"),
    ("slave_connections_needed_for_purge=-1", "slave_connections_needed_for_purge: -1 is not"),
    (
        "slave_connections_needed_for_purge=1.0",
        "slave_connections_needed_for_purge: 1.0 is no whole number",
    ),
    ("dump_frame_cache_size=0", "dump_frame_cache_size: 0 is not between"),
    ("max_connections=9", "max_connections: 9 is not between 10 and 100000"),
    ("max_user_connections=-1", "max_user_connections: -1 is not between"),
    ("max_connect_errors=0", "max_connect_errors: 0 is not between"),
    ("connect_timeout=1", "connect_timeout: 1 is not between 2 and 31536000"),
    ("net_read_timeout=0", "net_read_timeout: 0 is not between"),
    ("net_write_timeout=0", "net_write_timeout: 0 is not between"),
    ("wait_timeout=0", "wait_timeout: 0 is not between 1 and 31536000"),
    ("tcp_keepalive_time=-1", "tcp_keepalive_time: -1 is not between"),
    ("tcp_keepalive_interval=32768", "tcp_keepalive_interval: 32768 is not between"),
    ("tcp_keepalive_probes=128", "tcp_keepalive_probes: 128 is not between"),
    ("replica_lag_grace_seconds=0", "replica_lag_grace_seconds: 0 is not between"),
    ("slave_net_timeout=0", "slave_net_timeout: 0 is not between"),
    ("max_event_group_size=5", "max_event_group_size: 5 is not between"),
    ("server_version='9.9.9'", "server_version: '9.9.9' must begin with a number of 10"),
    ("server_version='binsrv'", "server_version: 'binsrv' must begin"),
    ("server_version=''", "server_version: '' must begin"),
    (f"server_version='11.{'8' * 60}'", "server_version: .* is not printable text of up to 50"),
    ('server_version="11.8\\n"', "server_version: .* is not printable"),
    (f"report_host='{'h' * 61}'", "report_host: .* up to 60 bytes"),
    ("report_host=7", "report_host: 7 is no text"),
    ("log_level='LOUD'", "log_level: 'LOUD' is none of DEBUG"),
    (
        "innodb_flush_log_at_trx_commit=4",
        "innodb_flush_log_at_trx_commit: 4 is not between 0 and 3",
    ),
    ("innodb_flush_log_at_timeout=-1", "innodb_flush_log_at_timeout: -1 is not between"),
    ("innodb_log_file_size=4096", "innodb_log_file_size: 4096 is not between 4194304 and"),
    ("innodb_log_buffer_size=1", "innodb_log_buffer_size: 1 is not between"),
    ("innodb_lock_wait_timeout=-1", "innodb_lock_wait_timeout: -1 is not between 0 and 100000000"),
    ("innodb_force_recovery=7", "innodb_force_recovery: 7 is not between 0 and 6"),
    (
        "rollback_at_start='NEVER'",
        "rollback_at_start: 'NEVER' is none of BACKGROUND, SYNCHRONOUS",
    ),
    (
        "binlog_error_action='IGNORE'",
        "binlog_error_action: 'IGNORE' is none of READ_ONLY, ABORT_SERVER",
    ),
    ("binlog_checksum='MD5'", "binlog_checksum: 'MD5' is none of NONE, CRC32"),
    ("ssl='ON'", "ssl: 'ON' is neither true nor false"),
    ("ssl_cert='c.pem'", "ssl_cert and ssl_key: give both, or none"),
    ("ssl_key='k.pem'", "ssl_cert and ssl_key: give both, or none"),
    ("ssl_ca=5", "ssl_ca: 5 is no text"),
    ("tls_version='TLSv1.1,TLSv1.2'", "tls_version: 'TLSv1.1' is none of TLSv1.2, TLSv1.3"),
    (
        "require_secure_transport=true\nssl=false",
        "require_secure_transport: with ssl = false nobody",
    ),
    ("read_only=1", "read_only: 1 is neither true nor false"),
    ("innodb_read_only=1", "innodb_read_only: 1 is neither true nor false"),
    ("local_tables='ON'", "local_tables: 'ON' is neither true nor false"),
    ("binlog_faults='ON'", "binlog_faults: 'ON' is neither true nor false"),
    ("gtid_strict_mode='ON'", "gtid_strict_mode: 'ON' is neither true nor false"),
    (
        "max_session_mem_used=8191",
        "max_session_mem_used: 8191 is not between 8192 and 18446744073709551615",
    ),
    (
        "max_total_session_mem_used=1048575",
        "max_total_session_mem_used: 1048575 is not between 1048576 and 1099511627776",
    ),
    ("max_tmp_session_space_usage=-1", "max_tmp_session_space_usage: -1 is not between 0 and"),
    ("max_tmp_total_space_usage=-1", "max_tmp_total_space_usage: -1 is not between 0 and"),
    ("max_allowed_packet=1023", "max_allowed_packet: 1023 is not between 1024 and 1073741824"),
    ("[users]\nrepl={grants=[]}", "users: write a table"),
    (
        "[users]\nrepl={password='x', grant=[]}",
        "users: repl: unknown option 'grant': did you mean 'grants'?",
    ),
    ("[users]\nrepl={password='x', max_lag_second=1}", "did you mean 'max_lag_seconds'"),
    (
        "[users]\nrepl={password='x', grants=['REPLICATON SLAVE']}",
        "did you mean 'REPLICATION SLAVE'",
    ),
    ("[users]\nrepl={password='x', grants='ALL'}", "users: write a table"),
    ("[users]\nrepl={password='x', grants=['FLY']}", "users: repl: 'FLY' is no privilege here"),
    ("users=5", "users: write a table"),
    ("[users]\nrepl=5", "users: write a table"),
    (
        "[users]\nrepl='x'\nread_only=true",
        "users: read_only is an option of the server, and behind",
    ),
    ("[users]\nrepl='x'\nlisten='0.0.0.0:3307'", "users: listen is an option of the server"),
    ("[users]\nlog_bin='m-bin'", "write it in front of the first table in"),
    ("[users]\nssl=true", "users: ssl is an option of the server"),
    ("no_such=1", "unknown option 'no_such' in .*config.toml"),
    ("bind_address='::'", "unknown option 'bind_address' in .*: write listen = \"HOST:PORT\""),
    ("bind-address='::'", "unknown option 'bind-address' in .*: write listen = \"HOST:PORT\""),
    ("datadir='/d'", "unknown option 'datadir' in .*: write binlog_directory"),
    ("binlog_format='ROW'", "unknown option 'binlog_format' in .*: what an upstream sends is kept"),
    ("replicate_do_db='x'", "unknown option 'replicate_do_db' in .*: .* filter on the replicas"),
    ("relay_log_purge=1", "unknown option 'relay_log_purge' in .*: there is no relay log"),
    ("[mysqld]\nserver_id=1", "unknown option 'mysqld' in .*: there are no sections of programs"),
    ("server-id=1", "unknown option 'server-id'"),
    ("server_id=", "config.toml is not TOML: "),
]


@pytest.mark.parametrize(("text", "message"), WRONG_IN_FILE)
def test_wrong_options(tmp_path: Path, text: str, message: str) -> None:
    head = "" if text.startswith("binlog_directory") else "binlog_directory='/d'\n"
    with pytest.raises(ConfigError, match=message) as caught:
        load(written(tmp_path, head + text), {})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0),
        ("binlog_expire_logs_seconds=90", 90),
        ("expire_logs_days=2", 172_800),
        ("expire_logs_days=0.5", 43_200),
        ("binlog_expire_logs_seconds=90\nexpire_logs_days=2", 90),
    ],
)
def test_two_names_for_one_age(tmp_path: Path, text: str, seconds: int) -> None:
    options = load(written(tmp_path, text), DIRECTORY).store_options()
    assert options.binlog_expire_logs_seconds == seconds


def test_what_is_purged_reaches_the_store(tmp_path: Path) -> None:
    text = "max_binlog_total_size=5000000000\nslave_connections_needed_for_purge=0"
    options = load(written(tmp_path, text), DIRECTORY).store_options()
    assert options.max_binlog_total_size == 5_000_000_000
    assert options.slave_connections_needed_for_purge == 0
    assert Config(Path("/d")).store_options().slave_connections_needed_for_purge == 1


def test_accounts(tmp_path: Path) -> None:
    text = '[users]\na="x"\nb={password="y"}\nc={password="z", grants=["binlog  replay"]}'
    assert load(written(tmp_path, text), DIRECTORY).users == {
        "a": "x",
        "b": Account("y"),
        "c": Account("z", frozenset({"BINLOG REPLAY"})),
    }


def test_every_option_has_a_wrong_value_here() -> None:
    tried = {text.partition("=")[0].strip("[] \n") for text, _ in WRONG_IN_FILE} | {"users"}
    assert tried >= set(Config.__dataclass_fields__) - {"listen_port"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({}, "binlog_directory is missing: give --directory"),
        ({**DIRECTORY, "listen": "x"}, "listen: 'x' is not HOST:PORT"),
        ({**DIRECTORY, "server_id": 0}, "server_id: 0 is not between"),
    ],
)
def test_wrong_command_lines(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(None, overrides)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no .*none\.toml"):
        load(tmp_path / "none.toml", DIRECTORY)
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path, DIRECTORY)


URLS = {
    "mariadb://u:p@h": ("h", 3306, "u", "p"),
    "mysql://u:p@h:3307/": ("h", 3307, "u", "p"),
    "mariadb://u@h": ("h", 3306, "u", ""),
    "mariadb://u:@h": ("h", 3306, "u", ""),
    "mariadb://u%40x:p%2F%3A%23%25@h": ("h", 3306, "u@x", "p/:#%"),
    "mariadb://u:p%C3%A9@h": ("h", 3306, "u", "pé"),
    "mariadb://u:a:b@h": ("h", 3306, "u", "a:b"),
    "mariadb://u:p@[::1]:3307": ("::1", 3307, "u", "p"),
    "mariadb://u:p@[fe80::1]": ("fe80::1", 3306, "u", "p"),
    "mariadb://u:p@10.0.0.1:1": ("10.0.0.1", 1, "u", "p"),
}


@pytest.mark.parametrize("url", URLS)
def test_urls(url: str) -> None:
    (info,) = load(None, {**DIRECTORY, "upstream": url}).upstream.values()
    assert (info.host, info.port, info.user, info.password.text) == URLS[url]
    assert (info.ssl, info.ssl_verify_server_cert) == (True, None)


def test_upstream_tables(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        [upstream]
        host = "h"
        user = "u"
        password_env = "X"
        connect_retry = 5
        heartbeat_period = 2
        ssl = false
        [upstream.East]
        host = "e"
        port = 3307
        user = "u"
        password = "p"
        ssl_verify_server_cert = false
        do_domain_ids = [2, 1, 2]
        ignore_server_ids = [7]
        candidates = ["db2", "[::1]:3307"]
        check_last_group = false
        """,
    )
    assert load(path, DIRECTORY).upstream == {
        "": MasterInfo(
            "h", 3306, "u", Password(env="X"), connect_retry=5, heartbeat_period=2.0, ssl=False
        ),
        "East": MasterInfo(
            "e",
            3307,
            "u",
            Password("p"),
            ssl_verify_server_cert=False,
            do_domain_ids=(1, 2),
            ignore_server_ids=(7,),
            candidates=("db2:3306", "[::1]:3307"),
            check_last_group=False,
        ),
    }


WRONG_URLS = [
    "",
    "h",
    "u:hidden@h",
    "http://u:hidden@h",
    "mariadb://h",
    "mariadb://:hidden@h",
    "mariadb://u:hidden@",
    "mariadb://u:hidden@h:port",
    "mariadb://u:hidden@h:65536",
    "mariadb://u:hidden@h:0",
    "mariadb://u:hidden@h/db",
    "mariadb://u:hidden@h?x=1",
    "mariadb://u:hidden@h#x",
    "mariadb://u:hidden/x@h:1",
    "mariadb://u:hidden#x@h:1",
    "mariadb://u:hidden@[::1",
    "mariadb://u:hidden@::1:3306",
    "mariadb://u:hi[dden@h",
]


@pytest.mark.parametrize("url", WRONG_URLS)
def test_wrong_urls_and_no_password_in_the_message(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^upstream: ") as caught:
        load(None, {**DIRECTORY, "upstream": url})
    assert "hidden" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:3306", ("127.0.0.1", 3306)),
        (":0", ("", 0)),
        ("[::1]:3307", ("::1", 3307)),
        ("host.example:1", ("host.example", 1)),
    ],
)
def test_listen(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


def test_secrets_are_not_shown() -> None:
    config = Config(
        Path("/d"),
        upstream={"": MasterInfo.from_url("mariadb://u:hidden@h:1")},
        users={"a": "hidden"},
    )
    assert "hidden" not in repr(config)
