"""A relay for the clients of each version."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.clients.programs import Programs, Relay, install_of, server_version
from tests.kit.backends import VERSIONS_BY_TURNS
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB


@pytest.fixture(params=VERSIONS_BY_TURNS)
def version(request: pytest.FixtureRequest) -> str:
    """Of the programs and of the upstream."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def relay(
    version: str, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer, tmp_path: Path
) -> Relay:
    """Its account may do what a DBA does."""
    upstream = make_upstream("--binlog-row-metadata=FULL", version=version)
    server = binlog_server(
        upstream=upstream,
        users={"dba": {"password": "a secret", "grants": ["ALL PRIVILEGES"]}},
        server_version=server_version(version),
    )
    return Relay(upstream, server, Programs(install_of(upstream), server, tmp_path))
