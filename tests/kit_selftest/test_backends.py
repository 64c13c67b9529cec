"""What BINLOG_TEST_BACKENDS and its companions mean."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.kit import backends
from tests.kit.backends import Backend

VARIABLES = ("BINLOG_TEST_BACKENDS", "BINLOG_TEST_REQUIRE", "BINLOG_TEST_OFFICIAL_IMAGES", "CI")
ALL = ["local:10.11", "local:11.8", "docker:10.11", "docker:11.8"]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    def set_to(**values: str) -> None:
        forget()
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    yield set_to
    forget()


def forget() -> None:
    backends.wanted.cache_clear()
    backends.required.cache_clear()


def test_wanted(environment: Callable[..., None]) -> None:
    def wanted(**values: str) -> list[str]:
        environment(**values)
        return [str(b) for b in backends.wanted()]

    assert wanted() == ALL
    assert wanted(BINLOG_TEST_BACKENDS="docker") == ["docker:10.11", "docker:11.8"]
    assert wanted(BINLOG_TEST_BACKENDS="11.8, local") == [
        "local:11.8",
        "docker:11.8",
        "local:10.11",
    ]
    assert wanted(BINLOG_TEST_BACKENDS="local:10.6") == ["local:10.6"]
    assert wanted(BINLOG_TEST_OFFICIAL_IMAGES="12.3") == [*ALL, "official:12.3"]
    with pytest.raises(pytest.UsageError):
        wanted(BINLOG_TEST_BACKENDS="podman:11.8")


def test_required(environment: Callable[..., None]) -> None:
    def required(**values: str) -> set[str]:
        environment(**values)
        return {str(b) for b in backends.required()}

    assert required() == set()
    assert required(CI="true") == set(ALL)
    assert required(CI="true", BINLOG_TEST_REQUIRE="") == set()
    assert required(BINLOG_TEST_REQUIRE="local:11.8") == {"local:11.8"}


def test_a_missing_backend(environment: Callable[..., None]) -> None:
    missing = Backend("local", "1.2")
    environment()
    with pytest.raises(pytest.skip.Exception, match=r"no mariadbd 1\.2 here"):
        missing.require()
    environment(BINLOG_TEST_REQUIRE="local:1.2")
    with pytest.raises(pytest.fail.Exception, match="required, but missing"):
        missing.require()


def test_each_version_once() -> None:
    chosen = [Backend.parse(name) for name in [*ALL, "official:12.3"]]
    found = Counter(b for n in range(1000) for b in backends.one_kind_each(chosen, f"test_{n}"))
    for version in ("10.11", "11.8"):
        counts = [found[Backend(kind, version)] for kind in ("local", "docker")]
        assert sum(counts) == 1000
        assert 20 < counts[1] < 120, "an eighteenth: three versions, two of which may be in one"
    assert found[Backend("official", "12.3")] == 1000
    docker = chosen[2:4]
    assert backends.one_kind_each(docker, "any") == tuple(docker)
    assert backends.one_kind_each([], "any") == ()


def test_any_version() -> None:
    chosen = [Backend.parse(name) for name in ALL[:2]]
    found = Counter(b for n in range(1000) for b in backends.one(chosen, f"test_{n}"))
    assert found.total() == 1000
    assert min(found[backend] for backend in chosen) > 300
    assert backends.one([], "any") == ()
