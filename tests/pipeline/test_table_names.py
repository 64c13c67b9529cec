"""Names of tables with dots and backticks, as options and manifests have them."""

from __future__ import annotations

import pytest
from binlog_pipeline.schemas.subscription import Subscription
from binlog_pipeline.table_names import parsed_table, table_text
from binlog_protocol.sql.token_reader import TableName


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("shop.orders", ("shop", "orders")),
        ("shop.t\u00e4 ble", ("shop", "t\u00e4 ble")),
        ("shop.a`b", ("shop", "a`b")),
        ("shop.`a.b`", ("shop", "a.b")),
        ("`s.p`.`a``.b`", ("s.p", "a`.b")),
        ("shop.```a`", ("shop", "`a")),
    ],
)
def test_both_ways(text: str, name: tuple[str, str]) -> None:
    assert parsed_table(text) == name
    assert table_text(TableName(*name)) == text


@pytest.mark.parametrize("text", ["", "shop", "shop.", ".a", "a.b.c", "a.`b", "a.`b`c", "a.``"])
def test_no_names(text: str) -> None:
    with pytest.raises(ValueError, match="a table is named database"):
        parsed_table(text)


def test_what_is_quoted_without_need_is_said_as_it_is() -> None:
    assert table_text(parsed_table("`shop`.`a``b`")) == "shop.a`b"


def test_patterns() -> None:
    wanted = Subscription.parse(["shop.*", "`a.b`.`*.x`"])
    assert wanted.has("shop", "a.b")
    assert wanted.has("a.b", "t.x")
    assert not wanted.has("a.b", "tx")
