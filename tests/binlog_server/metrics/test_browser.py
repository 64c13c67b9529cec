"""The status page in a real browser: its script runs under its policy, it is live, and it says what the API says."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import re
import select
import subprocess
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any, cast

import pytest
from binlog_protocol.gtid import Gtid

from binlog_server.connections import peer_reads
from binlog_server.metrics import endpoint, page, status
from binlog_server.metrics.status import BAD, GOOD, LATE
from binlog_server.upstreams.master_info import MasterInfo
from tests.binlog_server.lab import DEADLINE_S, Lab, until
from tests.binlog_server.upstream import OPENING, FakeUpstream, Visit
from tests.binlog_server.upstream import PASSWORD as UPSTREAM_PASSWORD
from tests.kit.programs import program

from .scrape import answer_of, exchange

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")
# Nothing but this machine can be found.
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost"


class Browser:
    """A Chromium, spoken to by its DevTools protocol over two pipes. Its calls wait: to be made in a thread."""

    def __init__(self, folder: Path) -> None:
        chromium = program("chromium-headless-shell", "chromium")
        to_it, self._to = os.pipe()
        self._from, from_it = os.pipe()
        command = [chromium, *OPTIONS, ALONE, f"--user-data-dir={folder}", "about:blank"]
        # It wants them as descriptors 3 and 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_it} 4>&{from_it}', "chromium", *command],
            pass_fds=(to_it, from_it),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_it)
        os.close(from_it)
        self._left = b""
        self._asked = 0
        self._session = ""
        self.complaints: list[str] = []  # of scripts, and of the policy

    def open(self, url: str, *, scripts: bool = True) -> None:
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._ask("Page.navigate", url=url)

    def dom(self) -> str:
        """Empty while it is just being replaced."""
        root = self._ask("DOM.getDocument", depth=0)["root"]["nodeId"]
        found = self._answer("DOM.getOuterHTML", nodeId=root)
        return str(found.get("result", {}).get("outerHTML", ""))

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))

    def be_a_phone(self) -> None:
        self._be(390, 844, mobile=True)

    def be_wide(self) -> None:
        self._be(1000, 1010, mobile=False)

    def _be(self, width: int, height: int, *, mobile: bool) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self._ask("Emulation.setDeviceMetricsOverride", **size)

    def value(self, script: str) -> Any:
        return self._ask("Runtime.evaluate", expression=script)["result"]["value"]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _ask(self, method: str, **values: Any) -> Any:
        answer = self._answer(method, **values)
        assert "error" not in answer, answer
        return answer["result"]

    def _answer(self, method: str, **values: Any) -> Any:
        self._asked += 1
        session = {"sessionId": self._session} if self._session else {}
        request = {"id": self._asked, "method": method, "params": values, **session}
        os.write(self._to, json.dumps(request).encode() + b"\0")
        while True:
            answer = self._next()
            told = answer.get("params", {})
            source = told.get("entry", {}).get("source")
            if "exceptionDetails" in told or source in ("javascript", "security"):
                self.complaints.append(str(told))
            if answer.get("id") == self._asked:
                return answer

    def _next(self) -> Any:
        heard = select.poll()  # not select(): the tests before may have had a thousand files open
        heard.register(self._from, select.POLLIN)
        while b"\0" not in self._left:
            assert heard.poll(DEADLINE_S * 1000), "the browser says nothing"
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has ended"
            self._left += part
        text, _, self._left = self._left.partition(b"\0")
        return json.loads(text)


class Seen:
    """A page as the browser has made it."""

    def __init__(self, dom: str) -> None:
        self.dom = dom
        self.text = unescape(re.sub(r"<[^>]+>", " ", dom))

    def health(self, section: str) -> list[str]:
        """That of the rows of a table."""
        part = self.dom.partition(f'<section id="{section}">')[2].partition("</section>")[0]
        return re.findall(r'<td[^>]*><span class="(\w+)">', part)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    found = Browser(tmp_path / "browser")
    try:
        yield found
    finally:
        found.close()
    assert found.complaints == []


async def visit(browser: Browser, lab: Lab, **options: Any) -> None:
    url = f"http://localhost:{lab.server.metrics_port}/"
    await asyncio.to_thread(lambda: browser.open(url, **options))


async def until_seen(browser: Browser, is_there: Callable[[Seen], bool]) -> Seen:
    """The page, once it shows that."""
    async with asyncio.timeout(DEADLINE_S):
        while not is_there(seen := Seen(await asyncio.to_thread(browser.dom))):
            pass
    return seen


LIVE = '<span id="live" class="good">live</span>'


async def test_the_page_is_live(browser: Browser, tmp_path: Path) -> None:
    async with Lab(metrics_listen="127.0.0.1:0") as lab:
        lab.publish("0-1-1,0-1-2")
        replica = await lab.replica("0-1-1")
        await until(lambda: all(c.sent == lab.engine.durable_end for c in lab.server.connections))
        await visit(browser, lab)
        seen = await until_seen(browser, lambda seen: LIVE in seen.dom)  # an event has come
        assert seen.health("replicas") == [GOOD]
        asked = b"GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
        told = json.loads(answer_of(await exchange(lab.server.metrics_port, asked)).body)
        (row,) = told["replicas"]
        for value in (row["address"], row["account"], row["sent"], told["files"][0]["name"]):
            assert value in seen.text
        # It goes away: without being loaded again, the page has it in red.
        replica.client.close()
        await until_seen(browser, lambda seen: seen.health("replicas") == [BAD])
        await asyncio.to_thread(browser.picture, tmp_path / "page.png")
        await lab.stop()
        await until_seen(browser, lambda seen: '<span id="live" class="bad">' in seen.dom)


async def test_a_replica_that_is_paused_turns_red(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without semi-sync, and all was sent to it: its sockets take it."""
    shorter = ((peer_reads, "EVERY_S"), (endpoint, "LIVE_S"), (status, "LATE_S"), (page, "LATE_S"))
    for module, name in shorter:
        monkeypatch.setattr(module, name, 0.02)
    monkeypatch.setattr(status, "BAD_S", 0.1)
    async with Lab(metrics_listen="127.0.0.1:0") as lab:
        paused = await lab.replica()
        cast(asyncio.Transport, paused.client.writer.transport).pause_reading()
        await visit(browser, lab)
        await until_seen(browser, lambda seen: seen.health("replicas") == [GOOD])
        numbers = itertools.count(1)

        def is_red(seen: Seen) -> bool:
            lab.publish([Gtid(0, 1, next(numbers)) for _ in range(20)])
            return re.search('<span class="bad">has read nothing for ', seen.dom) is not None

        await until_seen(browser, is_red)
        (connection,) = lab.server.connections.dumps_of(100)
        await until(lambda: connection.sent == lab.engine.durable_end)  # its sockets take it all


async def test_without_scripts(browser: Browser) -> None:
    async with Lab(metrics_listen="127.0.0.1:0") as lab:
        lab.publish("0-1-1")
        await visit(browser, lab, scripts=False)
        seen = await until_seen(browser, lambda seen: "0-1-1" in seen.text)
        assert '<span id="live"></span>' in seen.dom


async def test_on_a_phone_nothing_lies_beside_the_screen(browser: Browser) -> None:
    async with Lab(metrics_listen="127.0.0.1:0") as lab:
        lab.publish("0-1-1")
        await lab.replica("0-1-1")
        await visit(browser, lab)
        await asyncio.to_thread(browser.be_a_phone)
        await until_seen(browser, lambda seen: seen.health("replicas") == [GOOD])
        script = "Math.max(...[...document.querySelectorAll('td *, table')].map(e => e.getBoundingClientRect().right))"
        assert 300 < await asyncio.to_thread(browser.value, script) <= 390


async def test_an_upstream_that_dies_is_seen(browser: Browser) -> None:
    async with FakeUpstream([Visit(OPENING)]) as upstream:
        url = f"mariadb://relay:{UPSTREAM_PASSWORD}@127.0.0.1:{upstream.port}"
        address = MasterInfo.from_url(url)
        async with Lab(metrics_listen="127.0.0.1:0", upstream={"": address}, server_id=10) as lab:
            await visit(browser, lab)
            await until_seen(browser, lambda seen: seen.health("upstreams") in ([GOOD], [LATE]))
            await upstream.__aexit__(None, None, None)
            seen = await until_seen(browser, lambda seen: seen.health("upstreams") == [BAD])
            assert "not ready" in seen.text
