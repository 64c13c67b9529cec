"""Errors that replicas, the log and this command tell, with their causes and what to do: one table.

`binlog-server doctor --error TEXT` looks in it, and docs/troubleshooting.md is made of it; a test holds both equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from binlog_protocol import errors
from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import ErrorKind


class Trouble(NamedTuple):
    """`pattern`: a regular expression for the text; `shown`: that text, for people.

    `is_general`: for a number of many texts: told where no other row fits.
    """

    pattern: str
    shown: str
    cause: str
    remedy: str
    is_general: bool = False


TROUBLES: Final = (
    Trouble(
        r"not in the master's binlog",
        '1236 "... not in the master\'s binlog"',
        "The replica's position is not in this store: the relay has not caught up with the upstream yet, or the "
        "replica has transactions of its own.",
        "Right after setting up a relay, wait until `@@gtid_binlog_pos` is that of the upstream. Otherwise the replica "
        "has diverged: `EXPLAIN GTID` here says of each of its GTIDs what became of it; set the replica up again.",
    ),
    Trouble(
        r"Could not find GTID state requested by slave",
        '1236 "Could not find GTID state requested by slave in any binlog files"',
        "The store begins later than the replica's position: the first files were purged, or the relay began later.",
        "Set the replica up again from a backup. Against the next time: `binlog_archive_url`, `CREATE BINLOG LEASE`, "
        "or longer slots. With an archive the text goes on with the reason for which it could not help.",
    ),
    Trouble(
        r"\b194[78]\b|conflicts with the binary log which contains",
        '1947, 1948 "Specified ... conflicts with the binary log which contains ..."',
        "`SET GLOBAL gtid_slave_pos` on a replica whose own binlog has groups that are newer, or of another domain: of "
        "an earlier life, or written there.",
        "Where its data are those of the position, and nobody follows it: `RESET MASTER` there, then the SET. Else "
        "look first what the groups are: they are in its data.",
    ),
    Trouble(
        r"never reached expected GTID state",
        'mariadb-binlog: "Binary logs never reached expected GTID state"',
        "It was given a file that is not the one that the server sends, or a position behind which nothing has come, "
        "or that the files do not have.",
        "Of a traditional binlog give it the file in which the position is; of a server with `.ibb` files any name "
        "will do, such as `binlog.000001`. `--raw` without `--stop-never` says so at its end with every server. "
        "clients.md",
    ),
    Trouble(
        r"reported unrecognized MariaDB version",
        'mariadb-binlog: "Master reported unrecognized MariaDB version"',
        "A mariadb-binlog of 10.11 ends at a server of 11 and newer.",
        "A newer mariadb-binlog; or another version for its account: `ALTER USER ... WITH SERVER_VERSION "
        "'10.11.16-MariaDB'`. clients.md",
    ),
    Trouble(
        r"The slave was dropped",
        '1236 "The slave was dropped"',
        "It lagged beyond the limits of its account.",
        "Look why it is slow; `ALTER USER ... WITH MAX_LAG_SECONDS n` changes the limit.",
    ),
    Trouble(
        r"slave with the same server_uuid|same server_id|server_id.* came again|\b4052\b",
        '"A slave with the same server_uuid/server_id as this slave has connected"',
        "Two replicas have the same `server_id`: each throws the other one out.",
        "Give each replica a `server_id` of its own, and the relay as well.",
    ),
    Trouble(
        r"SSL is required, but the server does not support it",
        '2026 "SSL is required, but the server does not support it"',
        "The server has no TLS: ours with `ssl = false`, or a MariaDB without a certificate (10.11 has none by "
        "itself). Replicas of 11.4 and newer, our relay and our commands ask for it by themselves.",
        "Give the server a certificate; or say `MASTER_SSL=0` on a replica, `ssl = false` in `[upstream]`, or "
        "`--skip-ssl-verify-server-cert` to a command.",
    ),
    Trouble(
        r"self.signed certificate|certificate verify failed|verify the server certificate|"
        r"[Cc]ertificate verification failure|certificate is NOT trusted",
        '2026 "... self-signed certificate", "certificate verify failed"',
        "The client verifies the certificate by its issuer, and has no authority for it.",
        "Give the server a certificate of your authority (`ssl_cert`, `ssl_key`) and the replica that authority "
        "(`MASTER_SSL_CA`); or say `MASTER_SSL_VERIFY_SERVER_CERT=0`.",
    ),
    Trouble(
        r"SSL_CTX_set_default_verify_paths failed|Failed to set ciphers|no cipher is in it",
        '2026 "SSL_CTX_set_default_verify_paths failed", "Failed to set ciphers to use"',
        "A file that `MASTER_SSL_CA` or `MASTER_SSL_CAPATH` names is not there or no PEM, or OpenSSL finds no cipher "
        "in `MASTER_SSL_CIPHER`.",
        "Name another one; `MASTER_SSL_CIPHER=''` takes it back. `RESET SLAVE ALL` of a MariaDB keeps these options.",
    ),
    Trouble(
        r"certificate has expired|certificate is not yet valid",
        '2026 "certificate has expired"',
        "The certificate of the server, or of the authority that has signed it, is not valid today; or a clock is "
        "wrong.",
        "Renew it; here `FLUSH SSL` or SIGHUP takes the new one. `openssl x509 -enddate -noout -in FILE` says until "
        "when it is valid.",
    ),
    Trouble(
        r"hostname mismatch|Hostname mismatch|IP address mismatch|Validation of SSL server certificate failed|"
        r"is not valid for '|doesn't match",
        '2026 "hostname mismatch", "Validation of SSL server certificate failed"',
        "The certificate is for another name than the one to which the client connects; with an address and no name it "
        "needs that address.",
        "Connect by a name that stands in it, or make one with this name or address (`subjectAltName`); or say "
        "`MASTER_SSL_VERIFY_SERVER_CERT=0`.",
    ),
    Trouble(
        r"protocol version|unsupported protocol|no shared cipher|handshake failure|no protocols available",
        '2026 "tlsv1 alert protocol version", "no shared cipher", "handshake failure"',
        "Both sides have no version of TLS or no cipher in common, or the server wants a certificate of the client.",
        "Let both take TLS 1.2 or 1.3 (`tls_version`); give the client `ssl_cert` and `ssl_key` where the account says "
        "`REQUIRE X509`.",
    ),
    Trouble(
        r"\b1045\b|Access denied for user",
        '1045 "Access denied for user"',
        "There is no such account for this address, its password is another one, or the account has `REQUIRE` and the "
        "client came without TLS or its certificate.",
        "`SHOW GRANTS FOR ...` and `SHOW CREATE USER ...` with an account that has `CREATE USER`, or `binlog-server "
        "user list`. With `REQUIRE SSL` a replica needs `MASTER_SSL=1`. A name in `[users]` hides all stored accounts "
        "of that name.",
    ),
    Trouble(
        r"\b1524\b|\b1251\b|\b2059\b|Authentication plugin|authentication plugin|authentication protocol",
        '2059 "Authentication plugin ... cannot be loaded", 1251 "... does not support authentication protocol"',
        "The account logs in by a plugin that the other side does not have, as `caching_sha2_password` of MySQL.",
        "`ALTER USER ... IDENTIFIED VIA mysql_native_password` or `ed25519`: every MariaDB knows both, and so does "
        "this server.",
    ),
    Trouble(
        r"\b1130\b|is not allowed to connect",
        '1130 "Host ... is not allowed to connect"',
        "No account is for this address.",
        "`CREATE USER 'name'@'10.0.%'`; hosts are patterns of addresses, names are not looked up.",
    ),
    Trouble(
        r"\b1129\b|is blocked because of many connection errors",
        '1129 "Host ... is blocked because of many connection errors"',
        "`max_connect_errors` logins from there have failed in a row.",
        "Mend the password there, then `FLUSH HOSTS`, or SIGHUP.",
    ),
    Trouble(
        r"\b1227\b|at least one of\) the",
        '1227 "Access denied; you need (at least one of) the ... privilege(s)"',
        "The account lacks the privilege that the text names.",
        "`GRANT` it; an upstream's account needs `REPLICATION SLAVE`. rights.md says what each statement needs.",
    ),
    Trouble(
        r"Could not find first log file name",
        '1236 "Could not find first log file name in binary log index file"',
        "The replica asks by the name of a file that is not here: it was purged, or it is a file of another server.",
        "`SHOW BINARY LOGS` has the names. Let the replica follow by GTID (`MASTER_USE_GTID = slave_pos`); if the file "
        "was purged, set the replica up again.",
    ),
    Trouble(
        r"impossible position",
        '1236 "... start replication from impossible position"',
        "The replica asks for a place that its file does not have: the master has lost its tail in a crash, or the "
        "position is that of a file of another server with the same name.",
        "Let the replica follow by GTID (`MASTER_USE_GTID = slave_pos`): that tells whether both have the same "
        "history.",
    ),
    Trouble(
        r"is missing the GTID",
        '1236 "The binlog on the master is missing the GTID ..."',
        "The replica has a group that is not here, though those before and after it are: it was written on the "
        "replica, or left out on the way here. The replica has `gtid_strict_mode`.",
        "`binlog-server compare` says where both differ. Set the replica up again; without `gtid_strict_mode` it goes "
        "on, and keeps what it has.",
    ),
    Trouble(
        r"broke inside a large transaction",
        '1236 "The connection broke inside a large transaction"',
        "The replica follows by file and position, and positions inside of such a transaction are none here.",
        "`MASTER_USE_GTID = slave_pos`; or wait until its SQL thread has applied all, then `CHANGE MASTER TO` its "
        "`Relay_Master_Log_File` and `Exec_Master_Log_Pos`.",
    ),
    Trouble(
        r"The login ends at",
        '1236 "The login ends at ..."',
        "The name at the login has `+until=`, and that target is reached, or cannot be found here.",
        "The replica is where it was to stop. Log in without `+until=`, or with a later target, to go on.",
    ),
    Trouble(
        r"log event entry exceeded max_allowed_packet",
        '1236 "log event entry exceeded max_allowed_packet; ..."',
        "The master has an event that is larger than its `max_allowed_packet`; or the replica asks for a place in the "
        "middle of an event, whose bytes look like a huge one.",
        "Raise `max_allowed_packet` on the master, `slave_max_allowed_packet` on the replica. If it comes back, the "
        "position is wrong: let the replica follow by GTID (`MASTER_USE_GTID = slave_pos`).",
    ),
    Trouble(
        r"binlog truncated in the middle of event|bogus data in log event|did not pass crc check|event .*checksum "
        r"(failure|verification failed)",
        '1236 "binlog truncated in the middle of event", "bogus data in log event", "did not pass crc check"',
        "A binlog file of the master is damaged, or ends in the middle of an event: a crash, a full or failing disk.",
        "Look at the disk of the master; `mariadb-binlog --verify-binlog-checksum` there, `binlog-server verify` here, "
        "say where. A relay or an archive that has those groups can serve the replica; otherwise set it up again.",
    ),
    Trouble(
        r"can not handle replication events with the checksum",
        '1236 "Slave can not handle replication events with the checksum that master is configured to log"',
        "The replica has not said that it knows checksums: it is a program of its own, or an old one.",
        "`SET @master_binlog_checksum = @@global.binlog_checksum` before it asks for the binlog, or a newer program.",
    ),
    Trouble(
        r"server_id was not set|Binary log is not open",
        '1236 "Misconfigured master - server_id was not set", "Binary log is not open"',
        "The master has no binlog, or its `server_id` is 0.",
        "`log_bin` and `server_id` in its configuration, and a restart; then set the replica up from that moment on.",
    ),
    Trouble(
        r"\b1236\b",
        '1236 "..."',
        "The master cannot send what the replica asks for; the text goes on with the reason.",
        "The IO thread stays stopped until `START SLAVE`. Look whether the master still has the position of the "
        "replica (`SHOW BINARY LOGS`, `EXPLAIN GTID`), and in the log of the master at that time.",
        is_general=True,
    ),
    Trouble(
        r"\b1062\b|Duplicate entry",
        '1062 "Duplicate entry ... for key"',
        "On a replica: it has the row already. Somebody has written there, or groups came twice or in another order.",
        "`read_only = 1` and `gtid_strict_mode = 1` on the replica, so that it happens no more; compare the tables "
        "with those of the master, and set the replica up again where they differ. To skip the group keeps the "
        "difference.",
    ),
    Trouble(
        r"\b1032\b|Can't find record",
        '1032 "Can\'t find record in ..."',
        "On a replica: a row that the master has changed or deleted is not there. Somebody has written there, or its "
        "data are of another position than the one from which it follows.",
        "`read_only = 1` and `gtid_strict_mode = 1` on the replica, so that it happens no more; compare the tables "
        "with those of the master, and set the replica up again where they differ.",
    ),
    Trouble(
        r"\b1950\b|out-of-order sequence number",
        '1950 "... would create an out-of-order sequence number with existing GTID ..."',
        "With `gtid_strict_mode`: the binlog of the server that says this has a GTID of that domain already that is as "
        "high. Somebody has written there, two masters write the same domain, or the binlog was kept when the "
        "replica was set up again.",
        "Compare `gtid_binlog_pos` there with that of the master. A replica with groups of its own is set up again, "
        "with `RESET MASTER` before its position is set; two masters get a `gtid_domain_id` each.",
    ),
    Trouble(
        r"\b1451\b|\b1452\b|foreign key constraint fails",
        '1452 "Cannot add or update a child row: a foreign key constraint fails", 1451 "... a parent row"',
        "On a replica: the row that the other one needs is not there, as it was on the master. Somebody has written "
        "on the replica, or some of its tables are not replicated.",
        "Compare the tables with those of the master, and set the replica up again where they differ; replicate "
        "parent and child tables together.",
    ),
    Trouble(
        r"\b1677\b|\b1535\b|cannot be converted from type|Table definition on master and slave does not match",
        '1677 "Column ... cannot be converted from type ...", 1535 "Table definition on master and slave does not '
        'match"',
        "The table of the replica has other columns than that of the master.",
        "Compare `SHOW CREATE TABLE` of both, and make them alike. `slave_type_conversions` lets a replica take "
        "narrower or wider types.",
    ),
    Trouble(
        r"\b1205\b|\b1213\b|\b1206\b|Lock wait timeout|Deadlock found|retried transaction",
        '1205 "Lock wait timeout exceeded", 1213 "Deadlock found", "retried transaction ... in vain"',
        "A lock was not to be had: another transaction has the rows. The SQL thread of a replica tries "
        "`slave_transaction_retries` times.",
        "A client repeats its transaction. On a replica `SHOW ENGINE INNODB STATUS` says who holds the lock: a backup "
        "or a long query; then `START SLAVE`.",
    ),
    Trouble(
        r"\b1590\b|LOST_EVENTS|The incident",
        '1590 "The incident LOST_EVENTS occured on the master"',
        "The master says that its binlog lacks changes: a transaction did not fit into the binlog's cache, or a write "
        "failed.",
        "The replica differs from then on: compare the tables, and set it up again. To skip the incident "
        "(`sql_slave_skip_counter = 1`) keeps the difference.",
    ),
    Trouble(
        r"\b1964\b|\b1942\b|failure of an earlier commit|Prior transaction",
        '1964 "Commit failed due to failure of an earlier commit on which this one depends"',
        "Of a replica with parallel threads: another group failed, and this one waits for it.",
        "Look in the replica's log for the first error of that second: that one is to be mended.",
    ),
    Trouble(
        r"\b1197\b|max_binlog_(stmt_)?cache_size",
        "1197 \"... required more than 'max_binlog_cache_size' bytes of storage\"",
        "The transaction is larger than the binlog's cache of a MariaDB may become.",
        "Raise `max_binlog_cache_size` on the server that says so, on replicas with `log_slave_updates` as well; or "
        "make the transaction smaller.",
    ),
    Trouble(
        r"\b1932\b|gtid_slave_pos.* (doesn't exist|is wrong)|GTID slave state",
        '1932 "Unable to load replication GTID slave state from mysql.gtid_slave_pos"',
        "The replica cannot read the table of its own position: it is missing, or of another version.",
        "`mariadb-upgrade` there makes it again; then set `gtid_slave_pos` to the position of the data.",
    ),
    Trouble(
        r"\b1290\b|running with the .* option so it cannot",
        '1290 "The MariaDB server is running with the ... option so it cannot execute this statement"',
        "An option of the server forbids the statement, `read_only` on a replica or here most of the time.",
        "Write on the master. To end `read_only` (`SET GLOBAL read_only = 0`) is a part of a promotion: operations.md.",
    ),
    Trouble(
        r"\b1872\b|\b1201\b|Could not initialize (master|relay log) info|Failed during slave I/O thread init",
        '1201 "Could not initialize master info structure"',
        "The replica cannot read its own files: `master.info`, `relay-log.info` or the relay log. They are damaged, of "
        "another owner, or the name of the host has changed and with it that of the relay log.",
        "Its log says which file. `RESET SLAVE`, then `CHANGE MASTER TO ... MASTER_USE_GTID = slave_pos`: with GTID "
        "nothing in them is needed.",
    ),
    Trouble(
        r"equal MariaDB server ids",
        '1593 "... master and slave have equal MariaDB server ids"',
        "The replica has the `server_id` of its master.",
        "Give one of them another (`server_id` here; `SET GLOBAL server_id` there), then `START SLAVE`.",
    ),
    Trouble(
        r"\b1593\b",
        '1593 "Fatal error: ..."',
        "The IO thread cannot go on with this master: it has the replica's `server_id`, refuses a variable of the "
        "replica, or, for a relay of ours, sends another history than before or groups in another order.",
        "The text names which of them. Give each server a `server_id` of its own; where histories differ, find where "
        "by `binlog-server compare`, and set up the one that is wrong again.",
        is_general=True,
    ),
    Trouble(
        r"\b1594\b|Relay log read failure",
        '1594 "Relay log read failure"',
        "The SQL thread cannot read an event of the relay log: its type is not known to this version, the file is "
        "damaged, or the MariaDB that it came back to has other names of files than the server before, whose "
        "events had no checksums (a mistake of MariaDB's).",
        "With GTID, `STOP SLAVE; START SLAVE` fetches the relay log anew. If it stops at the same event, the replica "
        "is older than who has written it: upgrade the replica.",
    ),
    Trouble(
        r"\b1595\b|\b1623\b|Relay log write failure|Unexpected master's heartbeat",
        '1595 "Relay log write failure", 1623 "Unexpected master\'s heartbeat data"',
        "The IO thread has not taken an event of the master: its CRC-32 is wrong, its type is not known, or a "
        "heartbeat lies before the replica's position.",
        "`START SLAVE` fetches it again. If it comes back, run `binlog-server verify` on the master's store, look at "
        "the network and at the disk of the replica, and compare the versions of both.",
    ),
    Trouble(
        r"\b1193\b|Unknown system variable",
        '1193 "Unknown system variable"',
        "The server does not know a variable: as a master, it is older than the replica, or no MariaDB, or a proxy "
        "answers.",
        "Look at `SELECT VERSION()` there, and at what listens at that address; the name stands in the text.",
    ),
    Trouble(
        r"\b1040\b|Too many connections",
        '1040 "Too many connections"',
        "As many connections as `max_connections` allows are there.",
        "`SHOW PROCESSLIST` says whose; end those that nobody needs, or raise `max_connections`. Replicas come again "
        "by themselves.",
    ),
    Trouble(
        r"\b1203\b|\b1226\b|max_user_connections|has exceeded the",
        '1203 "... more than \'max_user_connections\' active connections", 1226 "... has exceeded the ... resource"',
        "The account has reached one of its limits.",
        "`SHOW CREATE USER` shows them, `ALTER USER ... WITH` changes them; `max_user_connections` is that of all "
        "accounts.",
    ),
    Trouble(
        r"\b1041\b|max_total_session_mem_used",
        '1041 "Out of memory; what all sessions hold is more than max_total_session_mem_used"',
        "Statements, prepared ones or uncommitted transactions of all sessions hold more memory than is allowed.",
        "End large transactions and idle sessions (`SHOW PROCESSLIST`, `KILL`), or raise the variable.",
    ),
    Trouble(
        r"\b1043\b|Bad handshake",
        '1043 "Bad handshake"',
        "What has connected does not speak the protocol of MariaDB 4.1 and later, or a proxy has changed its bytes.",
        "Look who connects from that address; a check of health should ask `/readyz` of the metrics port.",
    ),
    Trouble(
        r"\b1053\b|shutdown in progress",
        '1053 "Server shutdown in progress"',
        "The server is being ended, or hands over to a new version.",
        "Nothing, if it comes back: replicas connect again by themselves after `MASTER_CONNECT_RETRY`.",
    ),
    Trouble(
        r"\b1927\b|Connection was killed",
        '1927 "Connection was killed"',
        "Somebody has ended the connection by `KILL`.",
        "Nothing for a replica: it connects again by itself.",
    ),
    Trouble(
        r"\b1153\b|[Pp]acket bigger than '|larger than max_allowed_packet",
        "1153 \"Got a packet bigger than 'max_allowed_packet' bytes\"",
        "A statement or an event is larger than one of the two sides takes.",
        "Raise `max_allowed_packet` there; on a replica, `slave_max_allowed_packet`.",
    ),
    Trouble(
        r"\b115[67]\b|packets out of order|Couldn't uncompress",
        '1156 "Got packets out of order", 1157 "Couldn\'t uncompress communication packet"',
        "Bytes are lost or changed on the way: by a proxy, or by a client that uses a connection from two threads. Of "
        "a connection that has not logged in: it speaks another protocol, as HTTP, or TLS from its first byte on.",
        "Connect without the proxy; look whether it goes on without compression (`slave_compressed_protocol = 0`).",
    ),
    Trouble(
        r"\b3159\b|insecure transport",
        '3159 "Connections using insecure transport are prohibited"',
        "The server has `require_secure_transport`, and the client came without TLS.",
        "`MASTER_SSL=1` on the replica; `--ssl` for a client.",
    ),
    Trouble(
        r"\b4151\b|account is locked",
        '4151 "Access denied, this account is locked"',
        "The account was locked by `ACCOUNT LOCK`.",
        "`ALTER USER ... ACCOUNT UNLOCK`.",
    ),
    Trouble(
        r"\b4246\b|must enable GTID mode",
        '4246 "Slave must enable GTID mode when master uses --binlog-storage-engine"',
        "The replica follows by file and position, and files of the new format have no such positions.",
        "`CHANGE MASTER TO MASTER_USE_GTID = slave_pos` on the replica.",
    ),
    Trouble(
        r"\b1016\b|Can't open file",
        '1016 "Can\'t open file"',
        "A file of the store is gone, or may not be read.",
        "`binlog-server verify` says which are missing; look at owner and mode of the folder.",
    ),
    Trouble(
        r"\b1105\b",
        '1105 "..."',
        "An error that has no number of its own: the text is all that is known.",
        "Look in the log of the server that has sent it, at the same time. A replica connects again by itself.",
        is_general=True,
    ),
    Trouble(
        r"stopped following upstream.*1236|another history",
        '"stopped following upstream ... 1236"',
        "The upstream has purged what comes next, or has another history.",
        "What is stored is still served. Restore the binlogs there, or begin with an empty directory: relay.md.",
    ),
    Trouble(
        r"key file .* of passwords",
        '"the key file ... of passwords cannot be used"',
        "The store came from a backup or another machine, and has the password of an upstream without the key that "
        "encrypts it.",
        "Copy `binlog-server.key` from the old store; or say the password again, `STOP SLAVE; CHANGE MASTER TO "
        "MASTER_PASSWORD='...'; START SLAVE`.",
    ),
    Trouble(
        r"\b1378\b|purgeable log is in use",
        '1378 "A purgeable log is in use, will not purge"',
        "A file has to stay. Those in front of it have gone.",
        "`SHOW WARNINGS` in the same session, or `EXPLAIN PURGE TO '...'`, says who holds it: operations.md has what "
        "to do then.",
    ),
    Trouble(
        r"\b1198\b|as you have a running slave",
        '1198 "This operation cannot be performed as you have a running slave"',
        "One of the two threads runs: on a MariaDB the SQL thread goes on when the IO thread has stopped with an "
        "error.",
        "`STOP SLAVE` first, and `START SLAVE` behind it.",
    ),
    Trouble(
        r"STATE_DIRECTORY|special execution directory",
        '"Failed at step STATE_DIRECTORY", "status=238"',
        "With the unit of systemd the store lies in `/var/lib/private/binlog-server`, and `/var/lib/binlog-server` is "
        "a link to it. Something else is there.",
        "Move the store that is to be served to `/var/lib/private/binlog-server`, delete what is in the place of the "
        "link, and start the service: it makes the link.",
    ),
    Trouble(
        r"is in use by another process",
        '"is in use by another process"',
        "Another server has the directory.",
        "One server per directory: end the other one.",
    ),
    Trouble(
        r"binlog-server\.redo (is|holds)|is not that of these files",
        '"binlog-server.redo is ..." (missing, damaged, another store\'s)',
        "The redo log is not that of the files. Nothing was changed.",
        "Put the right one back. Without it the last commits may be lost: `innodb_force_recovery = 6` for one start "
        "goes on with what the `.ibb` files hold.",
    ),
    Trouble(
        r"accepts nothing more",
        '"the binlog accepts nothing more"',
        "A write or a sync failed.",
        "Look at the disk, then restart; all that was acknowledged is there.",
    ),
    Trouble(
        r"Corrupt binlog found on page",
        '"Corrupt binlog found on page ..."',
        "A page of a file has changed on the disk.",
        "Restore that file from a copy. Or, where the upstream still has those groups: stop the server, move the file "
        "and all later `.ibb` files away, and start once with `innodb_force_recovery = 6`; a relay fetches what is "
        "missing. Tables here lose their last changes by that.",
    ),
    Trouble(
        r"the scrub has found damage",
        '"the scrub has found damage"',
        "A file of the store, or a part of the archive, is not what was written: the line says file, page and offset.",
        "Look at the disk first, and run `verify`. A file: restore it from a copy or a backup, or begin this "
        "store anew from the upstream or the archive; replicas that are behind it go on without it. A part: "
        "restore the object from a copy (a version of the bucket); while the store still has those groups, a "
        "new archive has them, too.",
    ),
    Trouble(
        r"[Nn]o space left|the disk is full",
        '"No space left on device", "the disk is full"',
        "Commits and upstreams wait for room; what is durable is served.",
        "Make room, and they go on by themselves. `EXPLAIN PURGE` says what holds each file; sql.md has how to purge "
        "on a full disk. Where `df` shows room, it is the inodes (`df -i`), or a quota.",
    ),
    Trouble(
        r"Address already in use|address already in use",
        '"Address already in use"',
        "Another program listens there.",
        "Choose another port (`listen`, `metrics_listen`), or end that program.",
    ),
    Trouble(
        r"through socket",
        '2002 "Can\'t connect to local server through socket"',
        "Without `-h` a client looks for the socket file of a MariaDB on this machine. This server has none.",
        "`mariadb -h 127.0.0.1 -P PORT`: with the number, not with `localhost`, which is the socket again.",
    ),
    Trouble(
        r"Connection refused|Connect call failed|Can't connect(?! to local)|connect to master",
        '2003 "Can\'t connect", "Connection refused"',
        "Nothing listens at that address, or a firewall is in between.",
        "Look at host and port; `bind_address` of a MariaDB may be the loopback alone.",
    ),
    Trouble(
        r"\b2013\b|\b2006\b|\b115[89]\b|\b116[01]\b|Lost connection to|[Ss]erver has gone away|communication packets|"
        r"failed registering on master|encountered when it try to",
        '2013 "Lost connection to server", 2006 "Server has gone away", 1158 to 1161 "... communication packets"',
        "The connection ended: the server was restarted or has ended it, a timeout has passed "
        "(`net_write_timeout`, `slave_net_timeout`), or a firewall forgets silent connections.",
        "A replica connects again by itself. If it comes back, the log of the server says why it has ended the "
        "connection; `MASTER_HEARTBEAT_PERIOD` keeps a silent one open. While reading the first packet: TLS or a "
        "proxy in between, or `max_connect_errors`.",
    ),
    Trouble(
        r"\b2005\b|Name or service not known|nodename nor servname|Temporary failure in name|Unknown server host",
        '"Name or service not known", 2005 "Unknown server host"',
        "The name of the host cannot be found.",
        "Look at its spelling, and at the resolver of this machine.",
    ),
)


_OF_STATEMENT: Final = (
    "The server refuses a statement, or warns of it, and the text says why. A replica stops with it where it applies a "
    "statement that went well on its master: tables or configuration of both differ."
)
_MEND: Final = (
    "Mend the statement. On a replica compare `SHOW CREATE TABLE` and `sql_mode` with those of the master, and set it "
    "up again where tables differ: to skip the group keeps the difference."
)
_NUMBER: Final = compiled_later(r"(?:^|error|errno|code)[ :(]*(\d{2,4})\b", re.IGNORECASE)
_LITERAL_MIN: Final = 8


def about(text: str) -> list[Trouble]:
    """The rows that fit an error's text; without one, what is known of an error of docs/errors.md."""
    found = [trouble for trouble in TROUBLES if re.search(trouble.pattern, text)]
    special = [trouble for trouble in found if not trouble.is_general]
    return special or found or list(_of_statements(text))[:1]


def _of_statements(text: str) -> Iterator[Trouble]:
    """Errors that the server sends: by their text, then by their number."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, ErrorKind)]
    number = _NUMBER.search(text)
    for by_text in (True, False):
        for kind in kinds:
            literal = re.split(r"\{\w+\}", kind.text)
            pattern = ".*".join(map(re.escape, literal))
            if by_text:
                is_long = len("".join(literal)) >= _LITERAL_MIN
                fits = is_long and re.search(pattern, text) is not None
            else:
                fits = number is not None and int(number[1]) == kind.errno
            if fits:
                yield Trouble(pattern, f'{kind.errno} "{kind.text}"', _OF_STATEMENT, _MEND)


def page() -> str:
    """The middle of docs/troubleshooting.md."""
    parts = [f"### {one.shown}\n\n{one.cause}\n\n{one.remedy}\n" for one in TROUBLES]
    return "\n".join(parts)
