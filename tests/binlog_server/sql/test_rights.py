"""What an account may do: each statement with each privilege alone, and without any, in a real session."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from binlog_protocol.errors import RemoteError
from binlog_protocol.wire.results import parse_error

from binlog_server.accounts.privileges import (
    ALL_PRIVILEGES,
    BINLOG_FAULT,
    BINLOG_REPLAY,
    CREATE_USER,
    REPLICATION_SLAVE,
    SHUTDOWN,
    SINGLE,
    USAGE,
)
from binlog_server.accounts.users import Account, Users
from binlog_server.sql.account_statements import AccountChange, AccountStatement
from binlog_server.sql.prepared_sql import PreparedSql
from binlog_server.sql.shows import Filterable
from binlog_server.sql.statement import Statement
from binlog_server.sql.variables import VARIABLES
from tests.binlog_server.lab import Client, Lab
from tests.binlog_server.rights.examples import (
    EXAMPLES,
    VICTIM,
    Example,
    everything,
    is_free_for_ones_own,
    variables_of,
)
from tests.binlog_server.rights.mariadb import DENIED, NOBODY
from tests.binlog_server.rights.page import COMMAND, PAGE, REASONS, SAME, differs, text


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == text(), (
        f"run {COMMAND}, and look at what has changed"
    )


def test_everything_is_declared_and_tried() -> None:
    statements = {s.__name__ for s in everything() if isinstance(s, type)}
    above = (Statement, AccountStatement, AccountChange, PreparedSql, Filterable)
    below = {statement.__name__ for one in above for statement in one.__subclasses__()}
    assert below - {one.__name__ for one in above} <= statements
    assert {example.subject for example in EXAMPLES} == everything()
    free = {subject for subject in everything() if is_free_for_ones_own(subject)}
    assert {example.subject for example in EXAMPLES if example.own} <= free
    assert {example.subject for example in EXAMPLES if not example.own} >= free
    ours = {v.name: v for v in VARIABLES.values() if not v.is_kept}
    assert variables_of("SET GLOBAL") == {v.name for v in ours.values() if v.set_global is not None}
    assert {"gtid_seq_no", *ours} >= variables_of("SET of the session")
    assert len({example.shown for example in EXAMPLES}) == len(EXAMPLES)


def test_what_differs_from_mariadb_says_why() -> None:
    assert {example.shown for example in EXAMPLES if differs(example)} == set(REASONS)
    assert {example.shown for example in EXAMPLES} >= SAME


def allowed(example: Example, privilege: str) -> bool:
    """By the page's own words."""
    if not example.needed or privilege in (ALL_PRIVILEGES, *example.needed):
        return True
    if CREATE_USER in example.needed:  # it is committed, for the replicas
        return privilege == BINLOG_REPLAY and not example.sql.startswith("SHOW")
    never = {BINLOG_FAULT, REPLICATION_SLAVE, SHUTDOWN}
    return privilege == BINLOG_REPLAY and never.isdisjoint(example.needed)


@pytest.fixture(params=[USAGE, *SINGLE, ALL_PRIVILEGES])
async def privilege(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def lab(privilege: str) -> AsyncIterator[Lab]:
    # USAGE beside a privilege adds nothing to it, and says that these are grants.
    users = {NOBODY: Account("pw", frozenset({USAGE, privilege}))}
    async with Lab(users=users) as running:
        Users(running.directory.state).add(VICTIM, "pw", ["RELOAD"])
        running.publish("0-1-1")
        yield running


async def logged_in(lab: Lab, user: str) -> tuple[Client, int]:
    client = await lab.client(user, "pw")
    ((number,),) = await client.query("SELECT CONNECTION_ID()")
    return client, int(number or 0)


async def outcome(lab: Lab, example: Example, victim: int) -> int:
    """The error's number, 0 without one. An answer that leaves out what is others' counts as 1227."""
    client, _ = await logged_in(lab, NOBODY)
    try:
        if isinstance(example.said, bytes):
            answer = await client.ask(example.said)
            return parse_error(answer).errno if answer[:1] == b"\xff" else 0
        rows = await client.query(example.said.replace("{victim}", str(victim)))
        if "PROCESSLIST" in example.said:
            return 0 if str(victim) in {row[0] for row in rows} else 1227
        return 0
    except RemoteError as error:
        return error.errno
    finally:
        client.close()


@pytest.mark.by_turns(6)
async def test_each_privilege_alone(lab: Lab, privilege: str) -> None:
    wrong = []
    victim: Client | None = None
    number = 0
    for example in EXAMPLES:
        if victim is None or VICTIM in str(example.said):
            # The one before may have dropped or killed it.
            Users(lab.directory.state).add(VICTIM, "pw", ["RELOAD"])
            victim, number = await logged_in(lab, VICTIM)
        errno = await outcome(lab, example, number)
        if (errno not in DENIED) is not allowed(example, privilege):
            wrong.append((example.shown, errno))
    assert wrong == []


@pytest.mark.parametrize("variable", ["enabled", "timeout", "wait_for_slave_count"])
async def test_a_replicas_account_cannot_hold_commits_up(variable: str) -> None:
    async with Lab(users={"repl": "pw"}) as lab:
        client, _ = await logged_in(lab, "repl")
        with pytest.raises(RemoteError, match=r"1227.* SUPER, REPLICATION MASTER ADMIN "):
            await client.query(f"SET GLOBAL rpl_semi_sync_master_{variable} = 1")
