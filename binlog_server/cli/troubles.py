"""Errors that replicas, the log and this command tell, with their causes and what to do: one table.

`binlog-server doctor --error TEXT` looks in it, and docs/troubleshooting.md is made of it; a test holds both equal.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Trouble(NamedTuple):
    """`pattern`: a regular expression for the text; `shown`: that text, for people."""

    pattern: str
    shown: str
    cause: str
    remedy: str


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
        r"The slave was dropped",
        '1236 "The slave was dropped"',
        "It lagged beyond the limits of its account.",
        "Look why it is slow; `ALTER USER ... WITH MAX_LAG_SECONDS n` changes the limit.",
    ),
    Trouble(
        r"slave with the same server_uuid|same server_id|server_id.* came again",
        '"A slave with the same server_uuid/server_id as this slave has connected"',
        "Two replicas have the same `server_id`: each throws the other one out.",
        "Give each replica a `server_id` of its own, and the relay as well.",
    ),
    Trouble(
        r"SSL is required, but the server does not support it",
        '2026 "SSL is required, but the server does not support it"',
        "The server runs with `ssl = false`, and replicas of 11.4 and newer ask for TLS by themselves.",
        "Take `ssl = false` away, or say `MASTER_SSL=0` on the replica.",
    ),
    Trouble(
        r"self.signed certificate|certificate verify failed",
        '2026 "... self-signed certificate", "certificate verify failed"',
        "The client verifies the certificate by its issuer, and has no authority for it.",
        "Give the server a certificate of your authority (`ssl_cert`, `ssl_key`) and the replica that authority "
        "(`MASTER_SSL_CA`); or say `MASTER_SSL_VERIFY_SERVER_CERT=0`.",
    ),
    Trouble(
        r"\b1045\b|Access denied for user",
        '1045 "Access denied for user"',
        "There is no such account for this address, or its password is another one.",
        "`SHOW GRANTS FOR ...` with an account that has `CREATE USER`, or `binlog-server user list`. A name in "
        "`[users]` hides all stored accounts of that name.",
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
        r"stopped following upstream.*1236|diverged|another history",
        '"stopped following upstream ... 1236"',
        "The upstream has purged what comes next, or has another history.",
        "What is stored is still served. Restore the binlogs there, or begin with an empty directory: relay.md.",
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
        "Restore that file from a copy, or move it and all later ones away: the relay fetches what is missing from the "
        "upstream, if it is still there.",
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
        "on a full disk.",
    ),
    Trouble(
        r"Address already in use|address already in use",
        '"Address already in use"',
        "Another program listens there.",
        "Choose another port (`listen`, `metrics_listen`), or end that program.",
    ),
    Trouble(
        r"Connection refused|Connect call failed|Can't connect|connect to master",
        '2003 "Can\'t connect", "Connection refused"',
        "Nothing listens at that address, or a firewall is in between.",
        "Look at host and port; `bind_address` of a MariaDB may be the loopback alone.",
    ),
    Trouble(
        r"Name or service not known|nodename nor servname|Temporary failure in name",
        '"Name or service not known"',
        "The name of the host cannot be found.",
        "Look at its spelling, and at the resolver of this machine.",
    ),
)


def about(text: str) -> list[Trouble]:
    """The rows that fit an error's text."""
    return [trouble for trouble in TROUBLES if re.search(trouble.pattern, text)]


def page() -> str:
    """The middle of docs/troubleshooting.md."""
    parts = [f"### {one.shown}\n\n{one.cause}\n\n{one.remedy}\n" for one in TROUBLES]
    return "\n".join(parts)
