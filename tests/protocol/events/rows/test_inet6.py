"""How MariaDB writes IPv6 addresses: each line was asked from 10.11 and 11.8."""

from __future__ import annotations

import ipaddress

import pytest
from binlog_protocol.events.rows.strings import inet6

SHOWN = {
    "::": "::", "::1": "::1", "::ffff": "::ffff", "::1:0": "::0.1.0.0", "::1:2": "::0.1.0.2",
    "::10.1.2.3": "::10.1.2.3", "::ffff:10.1.2.3": "::ffff:10.1.2.3", "::ffff:0:0": "::ffff:0.0.0.0",
    "::ffff:0:1": "::ffff:0.0.0.1", "::ffff:0:1:2": "::ffff:0:1:2", "0:0:1::1": "0:0:1::1",
    "1:0:0:2:0:0:0:3": "1:0:0:2::3", "1:0:0:0:2:0:0:3": "1::2:0:0:3", "1:0:2::": "1:0:2::",
    "1:0:3:4:5:6:7:8": "1::3:4:5:6:7:8", "0:1:2:3:4:5:6:7": "::1:2:3:4:5:6:7", "1:2:3:4:5:6:0:0": "1:2:3:4:5:6::",
    "::0:1:0:0": "::1:0:0", "::fffe:1.2.3.4": "::fffe:102:304", "64:ff9b::1.2.3.4": "64:ff9b::102:304",
    "1:0:0:2:3:0:0:4": "1::2:3:0:0:4", "::255.255.255.255": "::255.255.255.255", "::1:ffff": "::0.1.255.255",
    "1:2:3:0:4:5:6:7": "1:2:3::4:5:6:7", "0:2:3:4:5:6:7:8": "::2:3:4:5:6:7:8", "1:2:3:4:5:6:7:0": "1:2:3:4:5:6:7::",
    "1:2:3:4:5:6:7:8": "1:2:3:4:5:6:7:8",
}  # fmt: skip


@pytest.mark.parametrize(("address", "shown"), SHOWN.items())
def test_as_text(address: str, shown: str) -> None:
    found = inet6(ipaddress.IPv6Address(address).packed)
    assert str(found) == shown
    assert found == ipaddress.IPv6Address(address)
    assert ipaddress.IPv6Address(shown) == found
