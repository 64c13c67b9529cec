"""Text to a tree, by sqlglot in MariaDB's dialect: the only place that parses, and where its size is bounded.

Functions come out as they are written (`Anonymous`): what they mean stands in `functions`. What sqlglot takes beyond
MariaDB's SQL has no meaning in `binding`, and is refused there.

To import this module takes a tenth of a second of processor time and 17 MB: the first question imports it, in a thread.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import NotSupportedYet, ServerError, SqlSyntaxError
from binlog_protocol.tables.ddl_types import unquoted
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.mysql import MySQLParser
from sqlglot.tokens import TokenType

from binlog_server.queries.aggregates import AGGREGATES
from binlog_server.queries.constant_rows import (
    NO_LISTS,
    Constant,
    ConstantLists,
    ConstantRows,
    cut_lists,
    cut_out,
)
from binlog_server.queries.terms import Asker, LockWish, Said, Wish
from binlog_server.queries.types import ValueForm

CHARS_MAX: Final = 64 * 1024
"""Characters of a question without long lists of constants. As of any statement that is parsed."""
NODES_MAX: Final = 6000
"""Nodes of its tree."""
CHANGE_CHARS_MAX: Final = 4 << 20
"""Characters of an INSERT, UPDATE or DELETE of tables here."""
CHANGE_NODES_MAX: Final = 200_000
"""Nodes of its tree: some 50,000 values, beside constants in VALUES, of which there may be any number."""
CHANGE_TOKENS_MAX: Final = 300_000
"""Its words, numbers, texts and signs, beside these."""
DEPTH_MAX: Final = 24
"""Parentheses, CASE and unary operators within each other."""
_TREE_DEPTH_MAX: Final = (
    300  # chains of operators are deep to the left; `binding` goes through these in loops
)
_STEPS_A_TOKEN: Final = 8  # of what programs ask it is never more than three
_STEPS_MIN: Final = 5000
_NODE_BYTES: Final = 1024  # of memory, with what hangs on it
_TOKEN_BYTES: Final = 640  # with its part of the tree
_TOKEN: Final = compiled_later(
    r"""'(?:[^'\\]++|\\.|'')*+'|"(?:[^"\\]++|\\.|"")*+"|`[^`]*+`|\w++|[^\s\w]""", re.DOTALL
)
_LONG_CHARS: Final = 1024
_QUOTED: Final = compiled_later(
    r"""'(?:[^'\\]++|\\.|'')*+'|"(?:[^"\\]++|\\.|"")*+"|`[^`]*+`""", re.DOTALL
)
_NEAR_CHARS: Final = 80
BARE_NAMES: Final = frozenset(
    {"CURRENT_ROLE", "CURRENT_USER", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "LOCALTIMESTAMP"}
)
"""Functions that stand without parentheses, where there is no column of that name."""
_WORD: Final = compiled_later(r"[\w$]+")
_OPENING: Final = frozenset(
    {TokenType.L_PAREN, TokenType.CASE, TokenType.L_BRACKET, TokenType.L_BRACE}
)
_CLOSING: Final = frozenset(
    {TokenType.R_PAREN, TokenType.END, TokenType.R_BRACKET, TokenType.R_BRACE}
)
_UNARY: Final = frozenset(
    {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.INTRODUCER}
)


class _Parser(MySQLParser):  # type: ignore[misc]
    """MySQL's parser, with functions left as they are written, and the text of each item of a select list."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: MySQLParser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("CASE", "IF")
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: MySQLParser.FUNCTION_PARSERS[name]
        for name in (
            "CAST",
            "CONVERT",
            "EXTRACT",
            "GROUP_CONCAT",
            "POSITION",
            "SUBSTRING",
            "SUBSTR",
            "TRIM",
        )
    }

    TYPE_LITERAL_PARSERS: ClassVar[dict[Any, Any]] = {
        kind: lambda self, this, to: _literal(self, this, to)
        for kind in (exp.DType.DATE, exp.DType.TIME, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ)
    }
    PRIMARY_PARSERS: ClassVar[dict[Any, Any]] = {
        **MySQLParser.PRIMARY_PARSERS,
        TokenType.HEX_STRING: lambda self, token: _hex(self, token),
    }
    PLACEHOLDER_PARSERS: ClassVar[dict[Any, Any]] = {
        **MySQLParser.PLACEHOLDER_PARSERS,
        TokenType.PLACEHOLDER: lambda self: self._parse_question_mark(),
    }

    steps_left = 0
    """Steps over tokens, forth and back: in DATE(DATE(DATE(... sqlglot tries two ways at each level, twice as many at
    the next, and makes no node that `NODES_MAX` would count."""
    lists: ConstantLists = NO_LISTS
    """What was cut out of lists of IN."""

    def _advance(self, times: int = 1) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise _too_large("a statement so intricate")
        super()._advance(times)

    def _parse_in(self, this: Any, alias: bool = False) -> Any:
        """As sqlglot's, with the constants that were cut out."""
        opening = self._curr.start if self._curr else -1
        found = super()._parse_in(this, alias)
        if opening in self.lists.found:
            found.meta["at"] = opening
        return found

    def _parse_question_mark(self) -> Any:
        mark = self.expression(exp.Placeholder())
        mark.meta["at"] = self._prev.start
        return mark

    def _parse_parameter(self) -> Any:
        """`@name`, `@name := value`."""
        variable = self.expression(exp.Parameter(this=self._parse_variable_name()))
        if not self._match(TokenType.COLON_EQ):
            return variable
        return self.expression(exp.PropertyEQ(this=variable, expression=self._parse_disjunction()))

    def _parse_session_parameter(self) -> Any:
        """`@@name`, `@@scope.name`."""
        name, scope = self._parse_variable_name(), None
        first, _, last = name.name.partition(".")
        if last and first.upper() in ("GLOBAL", "SESSION", "LOCAL"):
            name, scope = exp.to_identifier(last, quoted=True), first
        return self.expression(exp.SessionParameter(this=name, kind=scope))

    def _parse_variable_name(self) -> Any:
        parts = []
        while self._curr:
            self._advance()
            parts.append(self._prev.text)
            if not self._match(TokenType.DOT):
                break
        name = ".".join(parts)
        if not name or name in ("(", ")", ",", "@"):
            self.raise_error("a variable without a name")
        return exp.to_identifier(name, quoted=True)

    def _parse_derived_table_values(self, allow_value_synonym: bool = False) -> Any:
        """As sqlglot's, but of ON DUPLICATE KEY UPDATE (VALUES(column) + 1) is an expression, and no table."""
        at = self._index + (self._curr.token_type == TokenType.L_PAREN if self._curr else 0)
        first, opening, name = ([*self._tokens[at : at + 3], None, None, None])[:3]
        is_of_column = (
            first is not None
            and first.token_type == TokenType.VALUES
            and opening is not None
            and opening.token_type == TokenType.L_PAREN
            and name is not None
            and name.token_type in {TokenType.IDENTIFIER, *self.ID_VAR_TOKENS}
        )
        if is_of_column and not allow_value_synonym:
            return None
        return super()._parse_derived_table_values(allow_value_synonym)

    def _parse_delete(self) -> Any:
        """As sqlglot's, but RETURNING stands behind LIMIT."""
        found = super()._parse_delete()
        if not found.args.get("returning"):
            found.set("returning", self._parse_returning())
        return found

    def _parse_returning(self) -> Any:
        if not self._match(TokenType.RETURNING):
            return None
        return self.expression(exp.Returning(expressions=self._parse_csv(self._parse_item)))

    def _parse_projections(self) -> tuple[list[Any], None]:
        return self._parse_csv(self._parse_item), None

    def _parse_csv(self, parse_method: Any, sep: Any = TokenType.COMMA) -> list[Any]:
        """As sqlglot's, but nothing behind a comma is an error."""
        first = parse_method()
        if first is None:
            return []
        items = [first]
        while self._match(sep):
            item = parse_method()
            if item is None:
                self.raise_error("nothing behind a comma")
            items.append(item)
        return items

    def _parse_item(self) -> Any:
        begin = self._curr
        item = self._parse_expression()
        if item is None:
            self.raise_error("nothing to select")
        if item is not None and begin is not None and self._prev is not None:
            item.meta["text"] = self.sql[begin.start : self._prev.end + 1]
        return item


def _hex(parser: Any, token: Any) -> Any:
    """0x3132 is a number where one is wanted, x'3132' is a text."""
    found = parser.expression(exp.HexString(this=token.text))
    found.meta["is_number"] = parser.sql[token.start : token.start + 2].lower() == "0x"
    return found


def _literal(parser: Any, this: Any, to: Any) -> Any:
    """DATE'2026-11-22'"""
    found = parser.expression(exp.Cast(this=this, to=to))
    found.meta["is_literal"] = True
    return found


class _Tokenizer(MySQL.Tokenizer):  # type: ignore[misc]
    """MySQL's, but CHARSET is a name: of a column of SHOW COLLATION, and of a function; REPLACE a statement."""

    KEYWORDS: ClassVar[dict[str, Any]] = {
        word: kind for word, kind in MySQL.Tokenizer.KEYWORDS.items() if word != "CHARSET"
    }
    COMMANDS: ClassVar[set[Any]] = MySQL.Tokenizer.COMMANDS - {TokenType.REPLACE}


class _Dialect(MySQL):  # type: ignore[misc]
    """MariaDB."""

    Parser = _Parser
    Tokenizer = _Tokenizer


@dataclass(frozen=True, slots=True)
class Question:
    """A parsed question, and what must be known of the server to answer it.

    Attributes:
        tree: sqlglot's.
        text: the statement's, as it was parsed.
        tables: schema (None: the current one) and name of each.
        system_variables: scope ("", "GLOBAL", "SESSION") and name in lower case of each.
        user_variables: names in lower case.
        functions: names in upper case.
        parameters: the offsets of its question marks.
        modifiers: of a change, words in upper case: REPLACE in the place of INSERT, IGNORE.
        held: bytes of memory, about.
        reads_changed: the table that is changed stands in a query, too.
        into: user variables that get the only row, names in lower case: SELECT ... INTO.
        locks: FOR UPDATE, LOCK IN SHARE MODE stands in it; `lock` is that of `locking_read`.
        limits: LIMIT stands in it.
        assigns: it sets user variables.
        is_of_query: an INSERT of what a SELECT gives.
        rows: the first rows of VALUES, which are neither in `text` nor in the tree.
        lists: the further constants of long lists of IN, which are neither; see `listed`.
    """

    tree: Any
    text: str
    tables: frozenset[tuple[str | None, str]]
    system_variables: frozenset[tuple[str, str]]
    user_variables: frozenset[str]
    functions: frozenset[str]
    parameters: tuple[int, ...]
    held: int
    modifiers: frozenset[str] = frozenset()
    reads_changed: bool = False
    locks: bool = False
    lock: LockWish | None = None
    limits: bool = False
    assigns: bool = False
    is_of_query: bool = False
    into: tuple[str, ...] = ()
    rows: ConstantRows | None = None
    lists: ConstantLists = NO_LISTS

    def listed(self, node: Any) -> Sequence[Constant]:
        """The constants of an IN that are not in its node."""
        return self.lists.found.get(node.meta.get("at", -1), ()) if self.lists.found else ()


def question(text: str) -> Question:
    """Parse a SELECT, or several with UNION. `text` has no comments and no other quotes than those of the default mode.

    Raises `SqlSyntaxError` (1064), `NotSupportedYet` (1235) for what is too large or no SELECT.
    """
    left, lists = cut_lists(text)
    if len(left) > CHARS_MAX:
        raise SqlSyntaxError(text[:_NEAR_CHARS])
    into: list[str] = []
    tree = _tree(left, NODES_MAX, lambda tokens: _take_into(tokens, into), lists=lists)
    if not isinstance(tree, exp.Query):
        raise SqlSyntaxError(text[:_NEAR_CHARS])
    return replace(_read(tree, left, lists), into=tuple(into))


class HasQuery(Exception):
    """There is a subquery in an expression of a table."""


def expression(text: str, nodes_max: int) -> Any:
    """The tree of an expression alone. Raises as `question`, and `HasQuery`."""
    found = _tree(f"SELECT {text}", nodes_max)
    parts = [
        name for name, part in found.args.items() if part and name not in ("expressions", "kind")
    ]
    if not isinstance(found, exp.Select) or parts or len(found.expressions) != 1:
        raise SqlSyntaxError(text[:_NEAR_CHARS])
    for node, _ in _nodes(found):
        if isinstance(node, exp.Query) and node is not found:
            raise HasQuery
        if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter | exp.Alias):
            raise NotSupportedYet("variables in an expression of a table")
    return found.expressions[0]


def question_of(tree: Any, text: str) -> Question:
    """What is asked of an expression alone. Raises `NotSupportedYet`."""
    return _read(tree, text)


def change(text: str, hold: Callable[[int], None] = lambda size: None) -> Question:
    """Parse an INSERT, REPLACE, UPDATE or DELETE, as `question`.

    Args:
        hold: is told how many bytes that may take, before they are taken, if it is a large one.
    """
    if len(text) > CHANGE_CHARS_MAX:
        raise _too_large("a statement so long")
    modifiers: set[str] = set()
    left, rows = cut_out(text)
    lines = text.count("\n") - left.count("\n")
    left, lists = cut_lists(left)
    if len(left) > CHARS_MAX or lists.found:
        words = sum(1 for _ in _TOKEN.finditer(left))
        if words > CHANGE_TOKENS_MAX:
            raise _too_large("a statement so large")
        hold(_TOKEN_BYTES * words + lists.held)

    def parsed(text: str) -> Any:
        return _tree(
            text,
            CHANGE_NODES_MAX,
            lambda tokens: _without_modifiers(tokens, modifiers),
            lines,
            lists,
        )

    short, texts = (left, {}) if lists.found else _without_long_texts(left)
    try:
        tree = parsed(short)
    except SqlSyntaxError:
        tree = parsed(left)  # which fails, too, with what stands near there
    if texts:
        _put_back(tree, texts)
    if rows is not None and not isinstance(tree.args.get("expression"), exp.Values):
        raise SqlSyntaxError(text[:_NEAR_CHARS])
    if not isinstance(tree, exp.Insert | exp.Update | exp.Delete):
        raise NotSupportedYet(f"{text.split(maxsplit=1)[0].upper()} in this form")
    if isinstance(tree, exp.Update) and tree.args.get("returning") is not None:
        raise SqlSyntaxError(text[text.upper().rindex("RETURNING") :][:_NEAR_CHARS])
    changed = tree.find(exp.Table)
    reads = changed is not None and any(
        node is not changed and isinstance(node, exp.Table) and node.name == changed.name
        for node, _ in _nodes(tree)
    )
    found = _read(tree, left, lists)
    held = found.held + (0 if rows is None else len(text) + rows.held)
    return replace(found, modifiers=frozenset(modifiers), reads_changed=reads, rows=rows, held=held)


def locking_read(text: str) -> Question:
    """Parse a SELECT of one table with FOR UPDATE or LOCK IN SHARE MODE, as `question`."""
    found = question(text)
    tree = found.tree
    table = (
        tree.args["from_"].this if isinstance(tree, exp.Select) and tree.args.get("from_") else None
    )
    is_grouped = any(isinstance(node, exp.GroupConcat) for node, _ in _nodes(tree))
    if (
        not isinstance(table, exp.Table)
        or tree.args.get("with_")
        or table.args.get("joins")
        or len(tree.args.get("locks") or ()) != 1
        or found.into
        or is_grouped
        or found.functions & AGGREGATES.keys()
    ):
        raise refused_lock()
    (lock,) = tree.args["locks"]
    wait = lock.args.get("wait")
    seconds = None
    if isinstance(wait, exp.Literal) and wait.this.isdecimal():
        seconds = int(wait.this[:9])
    elif wait is True:
        seconds = 0
    elif wait is not None and wait is not False:
        raise refused_lock()
    return replace(found, lock=LockWish(not lock.args.get("update"), seconds, wait is False))


def refused_lock() -> ServerError:
    """1235 for locks that are more than those of rows of one table."""
    return NotSupportedYet(
        "FOR UPDATE, LOCK IN SHARE MODE but of the rows of one table: SELECT ... FROM t [WHERE] [ORDER BY] [LIMIT] "
        "at the end of the statement, without groups"
    )


def _without_modifiers(tokens: list[Any], modifiers: set[str]) -> None:
    """Take out the words behind the first one that say how it is done; REPLACE becomes INSERT."""
    if tokens and tokens[0].token_type is TokenType.REPLACE:
        modifiers.add("REPLACE")
        tokens[0].token_type = TokenType.INSERT
    while len(tokens) > 1 and tokens[1].text.upper() in _MODIFIERS and not _is_quoted(tokens[1]):
        modifiers.add(tokens.pop(1).text.upper())


def _take_into(tokens: list[Any], names: list[str]) -> None:
    """Take out INTO @name, ... of the outer SELECT."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if token.token_type is not TokenType.INTO or depth or names:
            continue
        end = at + 1
        if len(tokens) > end and tokens[end].text.upper() in ("OUTFILE", "DUMPFILE"):
            raise NotSupportedYet(f"INTO {tokens[end].text.upper()}: no files are written here")
        while (
            len(tokens) > end + 1
            and tokens[end].token_type is TokenType.PARAMETER
            and tokens[end].end + 1 == tokens[end + 1].start
        ):
            names.append(tokens[end + 1].text.lower())
            end += 2
            if len(tokens) <= end or tokens[end].token_type is not TokenType.COMMA:
                break
            end += 1
        if names:
            tokens[at:end] = []
            return


def _said_otherwise(tokens: list[Any]) -> None:
    """{d '2026-11-23'} as DATE '2026-11-23', and so t and ts; LIMIT ROWS EXAMINED taken out: nobody needs it here;
    DEFAULT(column) as a function."""
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.token_type is TokenType.DEFAULT and _is_opened(tokens, at + 1):
            token.token_type = TokenType.VAR
        four = tokens[at : at + 4]
        kind = _ODBC.get(four[1].text.lower()) if len(four) == 4 else None
        if (
            token.token_type is TokenType.L_BRACE
            and kind is not None
            and four[2].token_type is TokenType.STRING
            and four[3].token_type is TokenType.R_BRACE
        ):
            four[1].token_type, four[1].text = kind
            four[1].start, four[2].end = token.start, four[3].end
            tokens[at : at + 4] = four[1:3]
        elif (
            token.token_type is TokenType.ROWS
            and len(four) > 2
            and four[1].text.upper() == "EXAMINED"
            and four[2].token_type is TokenType.NUMBER
        ):
            is_all = at > 0 and tokens[at - 1].token_type is TokenType.LIMIT
            tokens[at - is_all : at + 3] = []
            at -= is_all
            continue
        at += 1


def _is_opened(tokens: list[Any], at: int) -> bool:
    return at < len(tokens) and tokens[at].token_type is TokenType.L_PAREN


_ODBC: Final = {
    "d": (TokenType.DATE, "DATE"),
    "t": (TokenType.TIME, "TIME"),
    "ts": (TokenType.TIMESTAMP, "TIMESTAMP"),
}


def _is_quoted(token: Any) -> bool:
    return bool(token.token_type is TokenType.IDENTIFIER)


_MODIFIERS: Final = frozenset(("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE"))


def _tree(
    text: str,
    nodes_max: int,
    prepare: Callable[[list[Any]], None] = lambda tokens: None,
    lines_before: int = 0,
    lists: ConstantLists = NO_LISTS,
) -> Any:
    try:
        text = _with_whole_numbers(text)
        tokens = _Dialect().tokenize(text)
    except TokenError:
        raise SqlSyntaxError(text[:_NEAR_CHARS]) from None
    _require_whole(text, tokens)
    _said_otherwise(tokens)
    prepare(tokens)
    _require_flat(tokens)
    try:
        parser = _Dialect().parser(max_nodes=nodes_max)
        parser.lists = lists
        parser.steps_left = _STEPS_MIN + _STEPS_A_TOKEN * len(tokens)
        trees = [tree for tree in parser.parse(tokens, text) if tree is not None]
    except ParseError as error:
        raise _syntax(error, lines_before) from None
    except (RecursionError, ValueError, AttributeError, TypeError):
        raise SqlSyntaxError(text[:_NEAR_CHARS]) from None
    if len(trees) != 1:
        raise SqlSyntaxError(text[:_NEAR_CHARS])
    return trees[0]


def _with_whole_numbers(text: str) -> str:
    """The text with a blank behind a number like 1e0 in 1e0+1, which the tokenizer takes as one."""
    if not _MAY_BE_ODD.search(text):
        return text
    return _ODD_NUMBER.sub(lambda found: found[0] + (" " if found["number"] else ""), text)


_MAY_BE_ODD: Final = compiled_later(r"[eE][0-9]+[-+]")
# In a string or a name nothing is changed.
_ODD_NUMBER: Final = compiled_later(
    r"""'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+"|`[^`]*+`"""
    r"""|(?<![\w.])(?P<number>(?:\d++\.?\d*+|\.\d++)[eE]\d++(?=[-+]))""",
    re.DOTALL,
)


def _require_whole(text: str, tokens: list[Any]) -> None:
    """Raises `SqlSyntaxError` for what stands between tokens and is no blank: a comment that does not end, a NUL; and
    for a second statement, of which sqlglot would write to the log what it does not know, passwords too.
    """
    at, is_ended = 0, False
    for token in tokens:
        is_end = token.token_type is TokenType.SEMICOLON
        if is_ended and not is_end:
            raise SqlSyntaxError(text[token.start : token.start + _NEAR_CHARS])
        is_ended = is_end
        is_odd = token.token_type is TokenType.VAR and not _WORD.fullmatch(token.text)
        if is_odd or text[at : token.start].strip(" \t\n\v\f\r"):
            raise SqlSyntaxError(text[at : at + _NEAR_CHARS].lstrip())
        at = token.end + 1
    if text[at:].strip(" \t\n\v\f\r;"):
        raise SqlSyntaxError(text[at : at + _NEAR_CHARS].lstrip())


def _require_flat(tokens: list[Any]) -> None:
    """Raises `NotSupportedYet` (1235) for a statement that is too deep, so that no parser runs out of stack."""
    depth = unary = 0
    for token in tokens:
        kind = token.token_type
        depth += kind in _OPENING
        depth -= kind in _CLOSING
        is_prefix = kind in _UNARY or token.text.upper() in ("BINARY", "SELECT", "INTERVAL")
        unary = unary + 1 if is_prefix else 0
        if depth > DEPTH_MAX or unary > DEPTH_MAX:
            raise _too_large("nesting so deep")


def _too_large(what: str) -> ServerError:
    return NotSupportedYet(f"{what}, in a statement that is computed here")


def _syntax(error: ParseError, lines_before: int) -> ServerError:
    """1064 with the text from the place on, as MariaDB says it."""
    found = error.errors[0] if error.errors else {}
    if "Maximum number" in str(found.get("description")):
        return _too_large("a statement so large")
    line, start = found.get("line") or 1, found.get("highlight") or ""
    behind = found.get("end_context") or ""
    return SqlSyntaxError((start + behind)[:_NEAR_CHARS], line + lines_before)


def _read(tree: Any, text: str, lists: ConstantLists = NO_LISTS) -> Question:
    tables: set[tuple[str | None, str]] = set()
    variables: set[tuple[str, str]] = set()
    user_variables: set[str] = set()
    functions: set[str] = set()
    parameters: set[int] = set()
    locks = limits = assigns = False
    count = 0
    places: set[int] = set()
    for node, depth in _nodes(tree):
        count += 1
        if depth > _TREE_DEPTH_MAX * 4:
            raise _too_large("nesting so deep")
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier) and not named_query(node):
                tables.add((node.args["db"].name if node.args.get("db") else None, node.name))
            case exp.SessionParameter():
                variables.add(system_variable(node))
            case exp.Parameter():
                user_variables.add(node.this.name.lower())
            case exp.Anonymous():
                functions.add(node.name.upper())
            case exp.CurrentUser():
                functions.add("CURRENT_USER")
            case exp.Column() if node.name.upper() in BARE_NAMES:
                functions.add(node.name.upper())
            case exp.In() if "at" in node.meta:
                places.add(node.meta["at"])
            case exp.Lock():
                locks = True
            case exp.Limit() | exp.Fetch():
                limits = True
            case exp.PropertyEQ():
                assigns = True
            case exp.Placeholder() if "at" not in node.meta:
                raise SqlSyntaxError(text[:_NEAR_CHARS])  # :name, of other servers
            case exp.Placeholder():
                parameters.add(node.meta["at"])
    if places != lists.found.keys():
        raise SqlSyntaxError(text[:_NEAR_CHARS])  # IN of something else, as POSITION()
    return Question(
        tree,
        text,
        frozenset(tables),
        frozenset(variables),
        frozenset(user_variables),
        frozenset(functions),
        tuple(sorted(parameters)),
        len(text) + _NODE_BYTES * count + lists.held,
        locks=locks,
        limits=limits,
        assigns=assigns,
        is_of_query=isinstance(tree, exp.Insert) and isinstance(tree.expression, exp.Query),
        lists=lists,
    )


def constant_node(constant: Constant) -> Any:
    """The node that a constant of `Question.rows` would have in the tree; None for DEFAULT. Raises `SqlSyntaxError`."""
    if constant.text is not None:
        text = exp.Literal.string(unquoted(constant.text, escapes=True))
        if constant.introducer is None:
            return text
        return exp.Introducer(this=constant.introducer.rstrip(), expression=text)
    if constant.number is not None:
        number = exp.Literal.number(constant.number)
        return number if constant.minus is None else exp.Neg(this=number)
    if constant.hex is not None:
        found = exp.HexString(this=constant.hex)
        found.meta["is_number"] = True
        return found
    return exp.Null() if constant.word is not None and constant.word.upper() == "NULL" else None


def _without_long_texts(text: str) -> tuple[str, dict[str, str]]:
    """The text with names in the places of long texts, which sqlglot goes through one character after the other."""
    mark, found = secrets.token_hex(8), dict[str, str]()

    def cut(said: re.Match[str]) -> str:
        if said[0][0] == "`" or len(said[0]) <= _LONG_CHARS:
            return said[0]
        name = f"{mark}-{len(found)}"
        found[name] = said[0]
        return f"'{name}'"

    return _QUOTED.sub(cut, text), found


def _put_back(tree: Any, texts: Mapping[str, str]) -> None:
    for node, _ in _nodes(tree):
        if isinstance(node, exp.Literal) and node.is_string and node.this in texts:
            node.set("this", unquoted(texts[node.this], escapes=True))


def named_query(table: Any) -> Any:
    """The query of WITH that a table's name means where it stands; None if it means a table."""
    if table.args.get("db") is not None:
        return None
    child, parent = table, table.parent
    while parent is not None:
        known: list[Any] = []
        if isinstance(parent, exp.With):  # within one of them, which sees those in front of it
            known = parent.expressions[: parent.expressions.index(child)]
            if parent.args.get("recursive"):
                known = [*known, child]
        elif parent.args.get("with_") is not None and child is not parent.args["with_"]:
            known = parent.args["with_"].expressions
        for one in reversed(known):
            if one.alias.lower() == table.name.lower():
                return one
        child, parent = parent, parent.parent
    return None


class ExplainedTable(NamedTuple):
    """A table of a question, as EXPLAIN names it.

    number, kind: of its SELECT; 0 for the result of a UNION.
    alias: nothing if its SELECT has no tables.
    name: as a key of `Question.tables`; None for what is no table.
    """

    number: int
    kind: str
    alias: str = ""
    name: tuple[str | None, str] | None = None
    has_conditions: bool = False


def sources_of(question: Question) -> list[ExplainedTable]:
    """The tables of a question, SELECT by SELECT as they stand in its text."""
    selects = list(question.tree.find_all(exp.Select, bfs=False))
    found: list[ExplainedTable] = []
    numbers = {id(select): number for number, select in enumerate(selects, 1)}
    united: list[int] = []
    for select in selects:
        number = numbers[id(select)]
        kind = "SIMPLE" if len(selects) == 1 else "PRIMARY"
        parent = select.parent
        while isinstance(parent, exp.Paren):
            parent = parent.parent
        if isinstance(parent, exp.SetOperation):
            united.append(number)
        if number > 1:
            is_derived = isinstance(parent, exp.Subquery | exp.CTE) and not isinstance(
                parent.parent, exp.In | exp.Exists | exp.Binary
            )
            is_united = isinstance(parent, exp.SetOperation)
            kind = "UNION" if is_united else "DERIVED" if is_derived else "SUBQUERY"
        before = len(found)
        for table in select.find_all(exp.Table, bfs=False):
            is_own = table.find_ancestor(exp.Select) is select
            is_named = isinstance(table.this, exp.Identifier) and named_query(table) is None
            if is_own and is_named and table.name.lower() != "dual":
                name = (table.args["db"].name if table.args.get("db") else None, table.name)
                has_conditions = select.args.get("where") is not None
                found.append(
                    ExplainedTable(number, kind, table.alias_or_name, name, has_conditions)
                )
        if len(found) == before and select.args.get("from_") is None:
            found.append(ExplainedTable(number, kind))
    if united:
        found.append(ExplainedTable(0, "UNION RESULT", f"<union{','.join(map(str, united))}>"))
    return found


def _nodes(tree: Any) -> Iterator[tuple[Any, int]]:
    waiting: list[tuple[Any, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        is_chain = isinstance(node, exp.And | exp.Or)  # one of them is as deep as the next
        waiting += [
            (child, depth + (not is_chain or type(child) is not type(node)))
            for child in node.iter_expressions()
        ]


def system_variable(node: Any) -> tuple[str, str]:
    """Scope and name of a `SessionParameter`."""
    scope = (node.args.get("kind") or "").upper()
    return ("SESSION" if scope == "LOCAL" else scope), node.name.lower()


def sole_condition(question: Question) -> Any:
    """The condition of a SELECT of one table that asks nothing else, also of an INSERT; None for any other."""
    select = _sole_select(question)
    where = None if select is None else select.args.get("where")
    return None if where is None else where.this


def inserts_sole_select(question: Question) -> bool:
    """Whether it inserts what such a SELECT gives."""
    return isinstance(question.tree, exp.Insert) and _sole_select(question) is not None


def _sole_select(question: Question) -> Any:
    tree = question.tree
    is_insert = isinstance(tree, exp.Insert)
    select = tree.expression if is_insert else tree
    if not isinstance(select, exp.Select) or select.args.get("joins"):
        return None
    if not is_insert and len(question.tables) != 1:
        return None
    nodes = [node for node, _ in _nodes(select)]
    tables = sum(isinstance(node, exp.Table) for node in nodes)
    selects = sum(isinstance(node, exp.Select) for node in nodes)
    return select if selects == 1 and (tables == 1 or not is_insert) else None


def said_of(question: Question, condition: Any, asker: Asker) -> dict[str, Said]:
    """What columns must be for a condition to hold, as far as it says so with constants: by names in lower case."""
    said: dict[str, Said] = {}
    waiting = [] if condition is None else [condition]
    while waiting:
        node = waiting.pop()
        match node:
            case exp.And():
                waiting += [node.this, node.expression]
            case exp.Paren():
                waiting.append(node.this)
            case exp.In() if isinstance(node.this, exp.Column) and not node.args.get("query"):
                cut = map(constant_node, question.listed(node))
                found = [_constant(one, question, asker) for one in (*node.expressions, *cut)]
                values = [one for one in found if one is not None]
                if len(values) == len(found):
                    said.setdefault(node.this.name.lower(), Said()).values = values
            case exp.Between() if isinstance(node.this, exp.Column):
                for name in ("low", "high"):
                    _bound(said, node.this, name, _constant(node.args[name], question, asker))
            case exp.EQ() | exp.GT() | exp.GTE() | exp.LT() | exp.LTE():
                for column, other, is_left in (
                    (node.this, node.expression, True),
                    (node.expression, node.this, False),
                ):
                    value = _constant(other, question, asker)
                    if not isinstance(column, exp.Column) or value is None:
                        continue
                    if isinstance(node, exp.EQ):
                        said.setdefault(column.name.lower(), Said()).values = [value]
                    else:
                        is_low = isinstance(node, exp.GT | exp.GTE) is is_left
                        _bound(said, column, "low" if is_low else "high", value)
    return said


def _bound(said: dict[str, Said], column: Any, name: str, value: int | str | None) -> None:
    if value is not None:
        setattr(said.setdefault(column.name.lower(), Said()), name, value)


def wished_order(question: Question) -> Wish | None:
    """The order of a statement with LIMIT on one table; None where an order of rows as they are read is not enough."""
    tree = question.tree
    order = tree.args.get("order")
    if order is None or tree.args.get("limit") is None or len(question.tables) != 1:
        return None
    if not isinstance(tree, exp.Select | exp.Update | exp.Delete):
        return None
    if isinstance(tree, exp.Select):
        asks_more = any(
            tree.args.get(key) for key in ("joins", "group", "having", "distinct", "with_")
        )
        if asks_more or sum(isinstance(node, exp.Select) for node, _ in _nodes(tree)) > 1:
            return None
    aliases = {item.alias.lower() for item in tree.expressions if isinstance(item, exp.Alias)}
    names, downs = [], set()
    for item in order.expressions:
        if not isinstance(item, exp.Ordered) or not isinstance(item.this, exp.Column):
            return None
        if item.this.name.lower() in aliases:
            return None
        names.append(item.this.name.lower())
        downs.add(bool(item.args.get("desc")))
    return Wish(names, downs.pop()) if len(downs) == 1 else None


def _constant(node: Any, question: Question, asker: Asker) -> int | str | None:
    match node:
        case exp.Neg():
            found = _constant(node.this, question, asker)
            return -found if isinstance(found, int) else None
        case exp.Literal():
            if node.is_string:
                return str(node.this)
            return int(node.this) if node.this.isdecimal() else None
        case exp.Placeholder():
            number = question.parameters.index(node.meta["at"])
            if number < len(asker.parameters):
                kind, value = asker.parameters[number]
                if kind.form in (ValueForm.INT, ValueForm.TEXT) and isinstance(value, int | str):
                    return value
    return None
