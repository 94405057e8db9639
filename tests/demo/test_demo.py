"""`whitelie demo` as a process, in Chromium: it learns, and your own device keeps quiet."""

import contextlib
import json
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Request, expect

from helpers.chromium_page import FACTS, READABLE
from helpers.paths import ROOT
from project.test_docs import blocks
from whitelie.client import Answer, Client
from whitelie.demo.app import POLICY, client_script
from whitelie.demo.shop import HEROES, SPREAD, WINDOW
from whitelie.demo.visitors import Crowd, Visitor, World

HANG_TIMEOUT_SECONDS = 300.0
"""Seconds after which a test gives up; nothing is said about speed."""

CLOCKS = 50
"""By so many milliseconds may the clocks of a page and of its browser differ."""

BEST = max(HEROES, key=lambda hero: hero.rate).key


@dataclass
class Demo:
    """A demonstration at work: where it is, and where its folder is."""

    process: "subprocess.Popen[str]"
    address: str
    folder: Path

    @property
    def origin(self) -> str:
        return self.address.removesuffix("/demo")

    def ask(self, path: str, **given: Any) -> Any:
        answer = httpx.get(self.origin + path, timeout=30, **given)
        assert answer.is_success, answer.text
        return answer.json()

    def results(self) -> Any:
        facts = self.ask("/demo/settings")
        key = {"Authorization": f"Bearer {facts['reader']}"}
        return self.ask(f"/v1/experiments/{facts['experiment']}/results", headers=key)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "whitelie", "demo", "--no-browser", *arguments]


def started(*arguments: str) -> Demo:
    process = subprocess.Popen(
        command("--port", "0", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None
    said = "".join(process.stdout.readline() for _ in range(3))
    address = re.search(r"http://127\.0\.0\.1:\d+/demo", said)
    folder = re.search(r"removes (\S+)\.$", said, re.MULTILINE)
    assert address, said
    assert folder, said
    return Demo(process, address[0], Path(folder[1]))


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    running = started("--pace", "40")
    yield running
    running.process.send_signal(signal.SIGINT)
    running.process.communicate(timeout=HANG_TIMEOUT_SECONDS)


@dataclass
class OpenPage:
    """The page, what it asked for, and what the browser complained of."""

    page: Page
    requests: list[Request] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def note(self, request: Request) -> None:
        self.requests.append(request)

    @property
    def reports(self) -> list[Request]:
        return [each for each in self.requests if each.url.endswith("/v1/feedback")]


Look = Callable[..., OpenPage]


@pytest.fixture
def look(chromium: Browser, demo: Demo) -> Iterator[Look]:
    contexts = []

    def looking(width: int = 1280, *, dark: bool = False, har: Path | None = None) -> OpenPage:
        context = chromium.new_context(
            viewport={"width": width, "height": 940},
            color_scheme="dark" if dark else "light",
            record_har_path=har,
        )
        contexts.append(context)
        opened = OpenPage(context.new_page())
        page = opened.page
        page.on("request", opened.note)
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        page.on(
            "console",
            lambda said: (
                opened.complaints.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        page.goto(demo.address)
        expect(page.locator("#buy")).to_be_enabled()
        return opened

    yield looking
    for context in contexts:
        context.close()


def shown(page: Page, name: str) -> int:
    """Return the number that an element shows."""
    return int(re.sub(r"\D", "", page.locator(name).inner_text()) or 0)


def until(holds: Callable[[], bool], page: Page | None = None) -> None:
    end = time.monotonic() + HANG_TIMEOUT_SECONDS
    while not holds():
        assert time.monotonic() < end
        if page:
            page.wait_for_timeout(100)
        else:
            time.sleep(0.1)


def test_your_click_is_sent_later_once_and_flipped(look: Look, demo: Demo, tmp_path: Path) -> None:
    recording = tmp_path / "visit.har"
    opened = look(har=recording)
    page = opened.page
    newest, visits = _click_in_time(page)
    expect(page.locator("#bits .used .bit")).to_have_text("•")
    page.locator("#reveal").click()
    expect(page.locator("#bits .used .bit")).to_have_text(str(newest["bits"][1]))

    def mine() -> list[Request]:
        return [each for each in opened.reports if newest["token"] in str(each.post_data)]

    until(lambda: bool(mine()), page)
    expect(page.locator("#leaves")).to_contain_text("has left")
    page.wait_for_timeout(1500)
    (report,) = mine()
    assert report.timing["startTime"] >= newest["due"] - CLOCKS
    assert report.post_data_json == {"token": newest["token"], "bit": newest["bits"][1]}
    assert "authorization" not in report.all_headers()
    assert "cookie" not in report.all_headers()
    expect(page.locator("#log")).to_contain_text(str(report.post_data))
    assert len(opened.reports) <= visits, "one for each visit"
    assert not opened.complaints
    assert all(each.url.startswith(demo.origin) for each in opened.requests)
    page.context.close()
    _check_recording(recording, newest, visits)


STORED = """() => Object.entries(localStorage)
    .filter(([name]) => /report/.test(name)).map(([, text]) => JSON.parse(text))"""


def _has_decided_since(page: Page, moment: int) -> bool:
    return any(each["decided"] > moment for each in page.evaluate(STORED))


def _click_in_time(page: Page) -> tuple[dict[str, Any], int]:
    """Visit, and click before the window ends; return what is stored, and how often it took."""
    latest = 0
    for visits in range(2, 8):  # the first was when the page was opened
        latest = max([latest, *(each["decided"] for each in page.evaluate(STORED))])
        page.get_by_role("button", name="Visit again").click()
        until(partial(_has_decided_since, page, latest), page)
        expect(page.locator("#clicked")).to_have_text("none so far")
        newest = max(page.evaluate(STORED), key=lambda each: int(each["decided"]))
        page.locator("#buy").click()
        expect(page.locator("#clicked")).not_to_have_text("none so far")
        waits = "leaves in" in page.locator("#leaves").inner_text()
        if waits and "it stays here" in page.locator("#clicked").inner_text():
            return newest, visits
    raise AssertionError("this machine is too slow to click")


def _check_recording(recording: Path, newest: dict[str, Any], visits: int) -> None:
    """The program of docs/check.md reads what Chromium has recorded."""
    program: dict[str, Any] = {}
    exec(blocks((ROOT / "docs/check.md").read_text("utf-8"))[0].text, program)
    recorded = program["visits"](json.loads(recording.read_text("utf-8")), [True] * visits)
    ((seconds, bit),) = recorded[-1][1]
    assert bit == newest["bits"][1]
    assert seconds >= WINDOW - 0.1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_readable(look: Look, width: int, dark: bool) -> None:
    opened = look(width, dark=dark)
    expect(opened.page.locator("#true-clicks")).not_to_have_text("0")
    facts = opened.page.evaluate(FACTS)
    assert max(facts["scroll_width"], facts["inner_width"]) <= width
    assert facts["contrast"] >= READABLE
    assert facts["headings"][0] == 1
    violations = Axe().run(opened.page).response["violations"]
    serious = [each for each in violations if each["impact"] in ("serious", "critical")]
    assert [f"{each['id']}: {each['nodes'][0]['html']}" for each in serious] == []
    assert not opened.complaints


def test_the_best_arm_is_found(look: Look, demo: Demo) -> None:
    opened = look()
    page = opened.page
    slider = page.locator("#pace")
    expect(slider).to_have_value("40")
    slider.fill("300")
    until(lambda: demo.ask("/demo/truth")["pace"] == 300)
    place = [hero.key for hero in HEROES].index(BEST)
    row = page.locator("#known tr").nth(place)
    share = row.locator("td").last
    until(lambda: int(re.sub(r"\D", "", share.inner_text()) or 0) > 80, page)
    slider.fill("0")
    until(lambda: demo.ask("/demo/truth")["pace"] == 0)
    results, truth = demo.results(), demo.ask("/demo/truth")
    best = results["arms"][place]
    assert best["probability_best"] == max(arm["probability_best"] for arm in results["arms"])
    expect(page.locator("#sentence")).to_contain_text(BEST)
    assert shown(page, "#true-clicks") > 0
    assert truth["leaks"] == 0
    assert 0.1 < truth["lies"] / truth["reports"] < 0.45
    until(lambda: _all_have_reported(demo.ask("/demo/truth")))
    results, truth = demo.results(), demo.ask("/demo/truth")
    own = sum(arm["issued"] for arm in results["arms"]) - sum(truth["shown"].values())
    assert 0 < own < 20, "the visits of browsers, which the server cannot tell from the others"
    assert results["alarms"] == []
    assert not opened.complaints


def _all_have_reported(truth: Any) -> bool:
    return bool(truth["reports"] == sum(truth["shown"].values()))


def test_the_dashboard_opens_with_the_key_that_is_shown(look: Look, demo: Demo) -> None:
    opened = look()
    key = opened.page.locator("#admin").inner_text()
    with opened.page.context.expect_page() as dashboard:
        opened.page.locator("#dashboard").click()
    dashboard.value.get_by_label("key").fill(key)
    dashboard.value.keyboard.press("Enter")
    expect(dashboard.value.locator(".experiment")).to_be_visible()


def test_what_is_served(demo: Demo) -> None:
    page = httpx.get(demo.address)
    assert page.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    for path in re.findall(r'(?:href|src)="(/demo/[^"]+)"', page.text):
        assert httpx.get(demo.origin + path).status_code == 200
    script = httpx.get(f"{demo.address}/whitelie.js")
    assert script.content == client_script() == (ROOT / "clients/js/whitelie.js").read_bytes()
    again = httpx.get(demo.address, headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert httpx.get(demo.address, headers={"Host": "evil.example"}).status_code == 421
    paced = f"{demo.address}/pace"
    assert httpx.post(paced, json={"pace": 9}, headers={"Origin": "http://x"}).status_code == 403
    assert httpx.post(paced, content=b"9").status_code == 422


def test_it_ends_and_leaves_nothing() -> None:
    running = started("--pace", "100")
    assert running.folder.is_dir()
    until(lambda: sum(running.ask("/demo/truth")["shown"].values()) > 50)
    children = _children(running.process.pid)
    assert children
    running.process.send_signal(signal.SIGINT)
    said = running.process.communicate(timeout=HANG_TIMEOUT_SECONDS)
    assert running.process.returncode in (0, 130), said
    assert said[1] == ""
    assert not running.folder.exists()
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def _children(parent: int) -> list[int]:
    pids = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                pids.append(int(status.parent.name))
    return pids


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = subprocess.run(
            command("--port", port),
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_TIMEOUT_SECONDS,
        )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert "--port" in ended.stderr


# A visitor, alone


class Service:
    """Answers as the service does, and keeps what was sent."""

    address = "http://service.example"

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def post(self, path: str, body: bytes, headers: Any, timeout: float) -> Answer:
        self.bodies.append({"path": path, **json.loads(body)})
        mechanism = {"p00": 0.731, "p11": 0.731, "window": WINDOW, "spread": SPREAD}
        decision = {"arm": "kind", "token": "t", "mechanism": mechanism, "expires_in": 600}
        return Answer(200, json.dumps({"decisions": [decision]}).encode())


@pytest.mark.parametrize("likes", [False, True])
def test_a_visitor_reports_at_its_time_whatever_it_likes(likes: bool) -> None:
    service = Service()
    world = World(service.address, "pk_key", "x", WINDOW, SPREAD, {"kind": float(likes)})
    crowd = Crowd(world, random.Random(1))
    crowd.transport = service  # type: ignore[assignment]  # a stand-in
    agenda: list[tuple[float, Callable[[], None]]] = []
    crowd.at = lambda time, action: agenda.append((time, action))  # type: ignore[method-assign]  # a stand-in
    start = time.time()
    visitor = Visitor(crowd)
    visitor.arrive()
    assert [body["path"] for body in service.bodies] == ["/v1/experiments/x/decisions"]
    names = [getattr(action, "__name__", "") for _, action in agenda]
    assert names == (["click", "report"] if likes else ["report"])
    assert start + WINDOW <= agenda[-1][0] <= time.time() + WINDOW + SPREAD
    if likes:
        assert agenda[0][0] < start + WINDOW
        agenda[0][1]()
    visitor.report()
    assert len(service.bodies) == 1, "nothing leaves before its time"
    assert crowd.truth.clicks == {"kind": int(likes)}
    assert isinstance(visitor._device, Client)
