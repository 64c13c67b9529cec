"""Our `dataclass` beside that of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from itertools import product
from typing import Any, ClassVar, Final

import pytest
from binlog_protocol.dataclass import dataclass

Decorator = Callable[..., Any]


def plain(dataclass: Decorator, **options: Any) -> Any:
    @dataclass(**options)
    class One:
        """Has a docstring."""

        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list, compare=False)
        secret: str = field(default="x", repr=False)
        kind: ClassVar[str] = "k"
        d: int = field(default=7, kw_only=True)

    return One


def computed(dataclass: Decorator, **options: Any) -> Any:
    @dataclass(**options)
    class One:
        a: int
        b: str = ""
        twice: int = field(init=False)
        fixed: int = field(default=3, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", self.a * 2)

    return One


def derived(dataclass: Decorator, **options: Any) -> Any:
    @dataclass(**options)
    class Base:
        a: int
        b: str = "base"

    @dataclass(**options)
    class One(Base):
        b: str = "derived"
        c: int = 5

    return One


def with_methods(dataclass: Decorator, **options: Any) -> Any:
    @dataclass(**options)
    class One:
        a: int
        b: str = "b"

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

    return One


def with_hash(dataclass: Decorator, **options: Any) -> Any:
    @dataclass(**options)
    class One:
        a: int
        b: str = "b"

        def __hash__(self) -> int:
            return 12

    return One


def empty(dataclass: Decorator, **options: Any) -> Any:
    @dataclass(**options)
    class One:
        def __init__(self, a: int, b: str = "") -> None:
            pass

    return One


SHAPES: Final = (plain, computed, derived, with_methods, with_hash, empty)
OPTIONS: Final[tuple[dict[str, bool], ...]] = (
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"eq": False},
    {"eq": False, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
)


def seen(call: Callable[[], Any]) -> Any:
    """The answer, or the error and its text."""
    try:
        return call()
    except (TypeError, AttributeError, FrozenInstanceError) as error:
        return type(error), str(error)


def looks(cls: Any) -> dict[str, Any]:
    """What there is to see of a class and of its objects; each class is asked in the same order."""
    one, same, other = (
        seen(lambda: cls(1, "x")),
        seen(lambda: cls(1, b="x")),
        seen(lambda: cls(2)),
    )
    found = {
        "repr": repr(one),
        "equal": (one == same, one == other, one != same, one == (1, "x")),
        "hash": seen(lambda: hash(one) == hash(same)),
        "has a hash": cls.__hash__ is None,
        "too few": seen(cls),
        "too many": seen(lambda: cls(*range(9))),
        "unknown": seen(lambda: cls(1, nothing=2)),
        "signature": str(inspect.signature(cls)),
        "match": getattr(cls, "__match_args__", None),
        "slots": getattr(cls, "__slots__", None),
        "fields": seen(lambda: [(f.name, f.type, f.init, f.compare) for f in dataclasses.fields(one)]),
        "replaced": repr(seen(lambda: dataclasses.replace(one, b="y"))),
        "as a dictionary": seen(lambda: dataclasses.asdict(one)),
        "copied": repr(seen(lambda: copy.copy(one))),
    }  # fmt: skip
    if dataclasses.fields(
        cls
    ):  # else, with slots, that of the standard library is a TypeError about super()
        found["set"] = seen(lambda: setattr(one, "a", 9))
        found["deleted"] = seen(lambda: delattr(other, "a"))
        found["behind it"] = seen(lambda: repr(one))
    return found


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        *product(SHAPES, OPTIONS),
        (empty, {"frozen": True, "slots": True, "init": False, "match_args": False}),
    ],
)
def test_it_is_that_of_the_standard_library(
    shape: Callable[..., Any], options: dict[str, bool]
) -> None:
    assert looks(shape(dataclass, **options)) == looks(shape(dataclasses.dataclass, **options))


@dataclass(frozen=True, slots=True)
class Frozen:
    a: int
    b: tuple[int, ...] = ()


@dataclass(slots=True)
class Open:
    a: int


def test_pickles() -> None:
    for one in (Frozen(1, (2,)), Open(3)):
        assert pickle.loads(pickle.dumps(one)) == one
        assert copy.deepcopy(one) == one


def test_any_method_may_be_the_first_that_is_called() -> None:
    def new() -> Any:
        cls = plain(dataclass, frozen=True, slots=True)
        one = object.__new__(cls)
        for name, value in {"a": 1, "b": "b", "c": [], "secret": "x", "d": 7}.items():
            object.__setattr__(one, name, value)
        return one

    assert repr(new()).endswith("One(a=1, b='b', c=[], d=7)")
    assert hash(new()) == hash(new())
    assert new() != 1
    one = new()
    assert one == one.__class__(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        new().a = 2


def test_nothing_is_compiled_where_the_class_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []

    def note(source: object, *rest: Any) -> None:
        compiled.append(source)
        exec(source, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(dataclasses, "exec", note, raising=False)
    monkeypatch.setattr("binlog_protocol.dataclass.exec", note, raising=False)
    cls = plain(dataclass, frozen=True, slots=True)
    assert not compiled
    one = cls(1)
    assert len(compiled) == 1
    assert repr(one)
    assert len(compiled) == 2
    assert cls(2) == cls(2)
    del compiled[:]
    assert cls(2) == cls(2)
    assert not compiled
