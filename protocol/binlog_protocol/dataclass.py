"""`dataclass`, for programs that make hundreds of them while they start.

That of the standard library writes the source of each method, and compiles it, where the class stands: 0.7 ms a class,
a third of the start of a server. Few of these methods are called there. Here the same ones are made when each is called
for the first time: `__init__`, which most classes need, by `_init_of`, in a fifth of the time that a class around it
takes; the others by the standard library. That is given no annotations, whose text it would search three times for
names of its own.

A type checker sees the one of the standard library; `field`, `fields`, `replace` and `asdict` are its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass


def _dataclass(
    plain: type | None = None,
    /,
    *,
    init: bool = True,
    eq: bool = True,
    frozen: bool = False,
    match_args: bool = True,
    slots: bool = False,
) -> Any:
    """Arguments are the standard library's: those that are taken here. InitVar and KW_ONLY are not."""

    def made(plain: type) -> type:
        wanted = {"__init__": init, "__repr__": True, "__eq__": eq, "__hash__": eq and frozen}
        own = plain.__dict__
        later = [name for name, is_wanted in wanted.items() if is_wanted and own.get(name) is None]
        has_no_hash = eq and not frozen and own.get("__hash__") is None
        if not plain.__doc__:
            plain.__doc__ = plain.__name__  # or the signature would be asked for
        annotations: dict[str, Any] = own.get("__annotations__", {})
        types = {name: kind for name, kind in annotations.items() if not _is_of_class(kind)}
        plain.__annotations__ = dict.fromkeys(types)
        cls: type = dataclasses.dataclass(
            init=False, repr=False, eq=False, match_args=match_args, slots=slots
        )(plain)
        cls.__annotations__ = annotations
        for field in dataclasses.fields(cls):
            field.type = types.get(field.name, field.type)
        _make_later(cls, later, frozen=frozen, slots=slots)
        methods: dict[str, Any] = {}
        if has_no_hash:
            methods["__hash__"] = None
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        if frozen and slots:  # a copy or pickle of one is not set by attributes
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        for name, method in methods.items():
            setattr(cls, name, method)
        return cls

    return made if plain is None else made(plain)


def _is_of_class(annotation: object) -> bool:
    """Whether it makes no field."""
    return str(annotation).removeprefix("typing.").startswith("ClassVar")


def _make_later(cls: type, names: Sequence[str], *, frozen: bool, slots: bool) -> None:
    """The first call of one of these methods makes it. Two threads may do that at once: both make the same."""

    def make(wanted: str) -> Callable[..., Any]:
        if wanted == "__init__":
            method = _init_of(cls, frozen=frozen, slots=slots)
        else:
            method = like_the_library(wanted)
        method.__qualname__ = f"{cls.__qualname__}.{wanted}"
        setattr(cls, wanted, method)
        return method

    def like_the_library(wanted: str) -> Callable[..., Any]:
        fields = {one.name: one for one in dataclasses.fields(cls)}
        body: dict[str, Any] = {**fields, "__module__": cls.__module__, "__doc__": cls.__name__}
        body["__annotations__"] = {name: one.type for name, one in fields.items()}
        twin: type = type(cls.__name__, (), body)
        twin = dataclasses.dataclass(
            init=False,
            repr=wanted == "__repr__",
            eq=wanted == "__eq__",
            unsafe_hash=wanted == "__hash__",
        )(twin)
        method: Callable[..., Any] = getattr(twin, wanted)
        return method

    def first_call_of(name: str) -> Callable[..., Any]:
        def method(self: Any, *values: Any, **named: Any) -> Any:
            return make(name)(self, *values, **named)

        return method

    for name in names:
        setattr(cls, name, first_call_of(name))


class _NotGiven:
    """The default of what a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


def _init_of(cls: type, *, frozen: bool, slots: bool) -> Callable[..., Any]:
    """`__init__` with a parameter for each field. `slots`: a default does not stand in the class."""
    fields = dataclasses.fields(cls)
    scope: dict[str, Any] = {"_dataclass_set": object.__setattr__, "_not_given": _NotGiven()}
    in_order: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for one in fields:
        name, default, value = one.name, "", one.name
        if one.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = one.default
            default = f"=_default_{name}"
            if not one.init:
                value = f"_default_{name}" if slots else ""
        elif one.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = one.default_factory
            default = "=_not_given"
            made = f"_make_{name}()"
            value = f"{made} if {name} is _not_given else {name}" if one.init else made
        elif not one.init:
            value = ""
        if one.init:
            (by_name if one.kw_only else in_order).append(name + default)
        if value:
            put = f"_dataclass_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}"
            body.append(put)
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    head = ", ".join(["self", *in_order, *(["*", *by_name] if by_name else [])])
    exec("\n ".join([f"def __init__({head}):", *(body or ["pass"])]), scope)
    method: Callable[..., Any] = scope["__init__"]
    method.__annotations__ = {one.name: one.type for one in fields if one.init} | {"return": None}
    return method


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


if not TYPE_CHECKING:
    dataclass = _dataclass
