"""Sentences of a grammar: each is one that its parser takes, or nearly; what is behind the parser is met so."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from lark import Lark

_WHOLE_WORD: Final = "(?![a-zA-Z0-9_$])"
_NEVER: Final = 1 << 20
_DEEP: Final = 40  # symbols on the way to a word; from there on the shortest way is taken
_LONG: Final = 400  # words of a sentence
# What stands for terminals that are no word of their own.
_POOL: Final = (
    "a", "t", "`b`", "`a``b`", "repl", "binlog_format", "gtid_slave_pos", "server_id", "max_binlog_size", "''",
    "'x'", "'%'", "'a%_'", "'0-1-1'", "'0-1-2,1-1-1'", "'0-1-18446744073709551615'", "'ON'", '"x"', r"'\\'",
    "'2026-11-22 10:00:00'", "'binlog-000000.ibb'", "'*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19'", "0", "1", "-1",
    "+1", "4", "256", "65535", "4294967295", "4294967296", "18446744073709551615", "18446744073709551616",
    "99999999999999999999999", "1.5", "-0.0", "0.000001", "1e10", "0x41", "X'41'", "@a", "@@server_id",
    "@@global.binlog_format", "@@session.sql_log_bin", "=", ":=", "<=>", "!=", "<", ">=", "+", "-", "DAY", "SECOND",
    "ONLY", "WRITE", "READ COMMITTED", "SERIALIZABLE", "FROM INFORMATION_SCHEMA.", "FROM DUAL", "SQL_NO_CACHE",
    "()", "( )", "DATE_SUB", "ADDDATE", "WHERE 1", "LIMIT 1", "ON", "OFF", "TRUE", "NULL", "SLAVE", "REPLICA",
    "SLAVES", "REPLICAS", "IO_THREAD", "SQL_THREAD", "NO", "SLAVE_POS", "CURRENT_POS", "MASTER_LOG_FILE",
    "MASTER_LOG_POS", "RELAY_LOG_POS", "MASTER_HOST", "MASTER_USER", "MASTER_PASSWORD", "MASTER_PASSWORD_FILE",
    "MASTER_PASSWORD_ENV", "MASTER_CANDIDATES", "MASTER_SSL_CA", "MASTER_PORT", "MASTER_CONNECT_RETRY",
    "MASTER_DELAY", "MASTER_CHECK_LAST_GROUP", "MASTER_SSL", "MASTER_DEMOTE_TO_SLAVE", "DO_DOMAIN_IDS",
    "IGNORE_DOMAIN_IDS", "IGNORE_SERVER_IDS", "ALL PRIVILEGES, GRANT OPTION", "ON *.*", "VIA", "AS",
    "MAX_LAG_BYTES", "MAX_BYTES_PER_SECOND",
)  # fmt: skip


class Sentences:
    """Of one grammar. `words`: that may stand for names, texts and numbers, beside some that always may."""

    def __init__(self, grammar: Lark, words: Iterable[str] = ()) -> None:
        pool = [*_POOL, *words]
        self._words = {t.name: _words_of(t.pattern.to_regexp(), pool) for t in grammar.terminals}
        self._ways: dict[str, list[list[str]]] = defaultdict(list)
        for rule in grammar.rules:
            self._ways[rule.origin.name].append([symbol.name for symbol in rule.expansion])
        self._depths = self._shortest()

    def sentence(self, rng: random.Random) -> str:
        """One of them."""
        waiting: list[tuple[str, int]] = [("start", 0)]
        said: list[str] = []
        while waiting and len(said) < _LONG:
            symbol, depth = waiting.pop()
            if symbol in self._words:
                said.append(rng.choice(self._words[symbol]))
                continue
            ways = [way for way in self._ways[symbol] if self._depth(way) < _NEVER]
            if depth > _DEEP:
                ways = [min(ways, key=self._depth)]
            waiting += [(inner, depth + 1) for inner in reversed(rng.choice(ways))]
        return " ".join(said)

    def _shortest(self) -> dict[str, int]:
        """Of each symbol, how deep its shallowest sentence is; much for those of which no words are known."""
        depths = {name: 0 if words else _NEVER for name, words in self._words.items()}
        self._depths = depths
        changed = True
        while changed:
            changed = False
            for symbol, ways in self._ways.items():
                depth = min(map(self._depth, ways)) + 1
                if depth < depths.get(symbol, _NEVER):
                    depths[symbol] = depth
                    changed = True
        return depths

    def _depth(self, way: Sequence[str]) -> int:
        return max((self._depths.get(symbol, _NEVER) for symbol in way), default=0)


def _words_of(pattern: str, pool: Sequence[str]) -> list[str]:
    word = re.fullmatch(r"(?:\(\?i:)?(\w+)" + re.escape(_WHOLE_WORD) + r"\)?", pattern)
    if word:
        return [word[1]]
    plain = re.fullmatch(r"(?:\(\?i:)?((?:\\.|[^\\\[\](){}?*+|.^$])+)\)?", pattern)
    if plain:
        return [re.sub(r"\\(.)", r"\1", plain[1])]
    return [one for one in pool if re.fullmatch(pattern, one, re.IGNORECASE)]
