"""Regular expressions: what they find, beside Python's own where both mean the same; and what they take at worst.

Beside a real server: tests/integration/test_expressions.py.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from binlog_protocol.errors import ServerError

from binlog_server.queries.regular import CELLS_MAX, Span, regular
from binlog_server.queries.terms import Budget


def found(pattern: str, text: str, *, is_folded: bool = False) -> Sequence[Span] | None:
    return regular(pattern, is_folded=is_folded).find(text, 0, Budget())


def match(pattern: str, text: str, *, is_folded: bool = False) -> str | None:
    spans = found(pattern, text, is_folded=is_folded)
    return None if spans is None or spans[0] is None else text[slice(*spans[0])]


@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
    [
        ("b+", "abbc", "bb"),
        ("a|ab", "ab", "a"),
        ("(?:a|ab)(?:c|bcd)", "abcd", "abcd"),
        ("a.*?c", "abcabc", "abc"),
        ("a.*c", "abcabc", "abcabc"),
        ("^b", "a\nb", None),
        ("(?m)^b$", "a\nb\nc", "b"),
        ("b$", "ab\n", "b"),
        (r"b\z", "ab\n", None),
        ("a.b", "a\nb", None),
        ("(?s)a.b", "a\nb", "a\nb"),
        ("(?i)AB", "xab", "ab"),
        ("a(?i:B)c", "aBc", "aBc"),
        ("a(?i:B)C", "aBc", None),
        ("(?x) a b  # comment", "ab", "ab"),
        ("[[:alpha:]_]+", "12ab_3", "ab_"),
        ("[^[:digit:]]+", "12ab3", "ab"),
        ("[]a-]+", "x]-a", "]-a"),
        (r"[\d.]+", "v1.2", "1.2"),
        (r"\bbar\b", "foobar bar", "bar"),
        (r"\Qa.b\E+", "a.bb", "a.bb"),
        (r"\x41\x{42}", "AB", "AB"),
        ("a{2}", "aaa", "aa"),
        ("a{2,}", "aaa", "aaa"),
        ("a{,2}", "aaa", "aa"),
        ("a{ 1 , 2 }", "aaa", "aa"),
        ("a{b}", "a{b}", "a{b}"),
        ("x{1,2}?", "xx", "x"),
        ("(?<name>a)(?P<other>b)", "ab", "ab"),
        ("", "abc", ""),
        ("(a*)*", "aab", "aa"),
        ("ä", "Ä", None),
        ("a(?#comment)b", "ab", "ab"),
        (r"(a|b)\1", "abb", "bb"),
        (r"(a\1)", "aa", None),
        (r"(?<n>a|b)\k<n>\g{-1}\g1", "abbbb", "bbbb"),
        ("a(?=b)", "aab", "a"),
        ("(?<!a)b", "abb", "b"),
        ("(?<=a|bc)d", "bcd", "d"),
        ("(?>a+)ab", "aaab", None),
        ("a++b", "aab", "aab"),
        (r"a\Kb", "ab", "b"),
        (r"\R", "\r\n", "\r\n"),
        (r"\v\h", "\v\t", "\v\t"),
        (r"\p{Lu}\PL", "aB1", "B1"),
        (r"a\Z", "a\n", "a"),
        ("a(?i)b|C", "c", "c"),
        ("(a(?i)b|C)D", "cd", None),
        ("(?|(a)|(b))c", "bc", "bc"),
        ("(a)?(?(1)b|c)", "c", "c"),
        ("[a&&b||~~[]+", "&|~[", "&|~["),
        ("[[:<:]]b", "ab b", "b"),
        ("", "", ""),
    ],
)
def test_found(pattern: str, text: str, wanted: str | None) -> None:
    assert match(pattern, text) == wanted


def test_without_case() -> None:
    assert match("[a-c]Ä", "xBä", is_folded=True) == "Bä"
    assert match("(?-i)b|B", "xB", is_folded=True) == "B"
    assert match("[[:upper:]x]", "abXC", is_folded=True) == "X"
    assert match("[^[:upper:]b]", "Bba", is_folded=True) == "a"


def test_bytes_are_no_letters_beyond_ascii() -> None:
    assert regular(r"\w", is_folded=False, is_bytes=True).find("\xe4", 0, Budget()) is None


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "missing closing parenthesis at offset 1"),
        ("a)", "unmatched closing parenthesis at offset 1"),
        ("[a", "missing terminating ] for character class at offset 2"),
        ("*a", "quantifier does not follow a repeatable item at offset 0"),
        ("[b-a]", "range out of order in character class"),
        ("[[:nope:]]", "unknown POSIX class name"),
        ("a\\", "\\ at end of pattern"),
        ("a**", "quantifier does not follow a repeatable item at offset 2"),
        ("^*", "quantifier does not follow a repeatable item at offset 1"),
        ("a{2,1}", "numbers out of order in {} quantifier at offset 5"),
        ("a{65536}", "number too big in {} quantifier at offset 7"),
        (r"ä(a)\2", "reference to non-existent subpattern at offset 6"),
        ("(?<n>a)(?<n>b)", "two named subpatterns have the same name"),
        ("(?<1>b)", "subpattern name must start with a non-digit at offset 3"),
        ("(?<n", "syntax error in subpattern name (missing terminator?) at offset 4"),
        ("(?<=a*)b", "length of lookbehind assertion is not limited at offset 0"),
        ("(?z)", "unrecognized character after (? or (?- at offset 2"),
        (r"\y", "unrecognized character follows \\ at offset 1"),
        (r"\x{zz}", "non-hex character in \\x{} (closing brace missing?) at offset 3"),
        (r"\p{Nope}", "unknown property after \\P or \\p"),
        (r"[a-\d]", "invalid range in character class at offset 5"),
        ("[:alpha:]", "POSIX named classes are supported only within a class at offset 0"),
    ],
)
def test_wrong(pattern: str, message: str) -> None:
    with pytest.raises(ServerError, match=re.escape(message)) as caught:
        found(pattern, "")
    assert caught.value.errno == 1139


@pytest.mark.parametrize(
    "pattern",
    [
        "(?R)",
        "(a(?1)?)",
        r"(?<n>a)\g<n>",
        "(*COMMIT)a",
        "(?U)a+",
        r"\C",
        "(?:b*|c|" * 16 + "a" + ")+" * 16,
        "(a{200}){200}",
        "a{60000}",
        "(" * 60 + "a" + ")" * 60,
        "a" * 5000,
    ],
)
def test_what_could_take_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(ServerError) as caught:
        found(pattern, "")
    assert caught.value.errno == 1235


def pattern_of(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(("a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b"))
    one, other = pattern_of(rng, depth - 1), pattern_of(rng, depth - 1)
    return rng.choice(
        (
            one + other,
            f"(?:{one}|{other})",
            f"({one})",
            f"(?:{one}){rng.choice(('*', '+', '?', '*?', '+?', '??', '{1,2}'))}",
        )
    )


def test_as_others_find() -> None:
    """But for groups within what is repeated, and repeated nothing, where every library has ways of its own."""
    rng = random.Random(7)
    for _ in range(3000):
        pattern = pattern_of(rng, 3)
        text = "".join(rng.choice("abc \n") for _ in range(rng.randrange(8)))
        theirs = re.search(pattern, text)
        mine = found(pattern, text)
        assert (mine is None) is (theirs is None), (pattern, text)
        if mine is not None and theirs is not None and mine[0] is not None and "*" not in pattern:
            assert mine[0][0] == theirs.start(), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+$", "a" * 400 + "b"),
        ("(a|a)*c", "a" * 400 + "b"),
        ("(a*)*b", "a" * 400),
        ("(x+x+)+y", "x" * 400),
        ("(.*)(.*)(.*)(.*)(.*)z", "x" * 400),
    ],
)
def test_no_pattern_is_catastrophic(pattern: str, text: str) -> None:
    budget = Budget()
    before = time.thread_time()
    budget.begin(0.1)
    try:
        spans = regular(pattern, is_folded=False).find(text, 0, budget)
    except ServerError as error:
        spans = None if error.errno == 1969 else [(0, error.errno)]
    assert spans is None
    assert time.thread_time() - before < 1


def test_a_cancelled_search_does_not_begin() -> None:
    budget = Budget()
    budget.cancel()
    with pytest.raises(ServerError, match="interrupted"):
        regular("(a?){300}b", is_folded=True).find("a" * 600, 0, budget)


def test_other_threads_go_on_beside_a_search() -> None:
    budget = Budget()

    def search() -> None:
        budget.begin(0.5)
        with pytest.raises(ServerError) as caught:
            regular("(a+)+[yz]", is_folded=True).find("a" * 1000, 0, budget)
        assert caught.value.errno == 1969

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(search)
        turns = 0
        while not wait([ended], 0.001).done:
            turns += 1
        ended.result()
    assert turns > 10


def test_texts_are_bounded_by_groups() -> None:
    text = "a" * (CELLS_MAX // 2)
    assert match("a*", text) == text
    with pytest.raises(
        ServerError, match="1 groups and repetitions over a text of more than 131072"
    ):
        found("a*", text + "a")
    with pytest.raises(ServerError) as caught:
        found("(a)*", text)
    assert caught.value.errno == 1235


@pytest.mark.long
def test_the_library_is_loaded_by_the_first_pattern() -> None:
    code = "import sys, binlog_server.queries.binding; sys.exit('regex' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
