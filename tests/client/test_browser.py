"""The JavaScript client in Chromium, on pages of another origin, against the real service."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, Request, Route

from helpers.chromium_page import ARGUMENTS, EXECUTABLES
from helpers.paths import ROOT
from helpers.service_process import ADMIN_KEY, Server, until
from whitelie.service.engine import keys
from whitelie.service.store.contract import Key
from whitelie.service.store.sqlite.store import SQLiteStore

HERE = Path(__file__).parent
MODULE = ROOT / "clients/js/whitelie.js"
ARMS = ("plain", "kind")
HANG_TIMEOUT_SECONDS = 120.0
"""Seconds after which a test gives up; nothing is said about speed."""

DAY = 86_400_000
SECOND = 1000
MINUTE = 60 * SECOND
CLOCKS = 50
"""By so many milliseconds may the clocks of a page and of its browser differ."""

STORED = """() => Object.entries(localStorage)
  .filter(([name]) => name.startsWith("whitelie.report."))
  .map(([, text]) => text)"""
SET_CLOCK = "{ const now = Date.now; Date.now = () => now() + %d; }"
BLOCK_STORAGE = """Object.defineProperty(window, "localStorage", {
  get() { throw new DOMException("blocked", "SecurityError"); },
});"""
FILL_STORAGE = """() => {
  let size = 2 ** 22;
  for (let number = 0; size >= 1; number += 1) {
    try { localStorage.setItem(`filled ${number}`, "x".repeat(size)); } catch { size /= 2; }
  }
}"""
PAGEHIDE_SENDERS = {
    "sendBeacon": "navigator.sendBeacon(url, body)",
    "keepalive": "fetch(url, { method: 'POST', body, keepalive: true })",
}


class Pages(SimpleHTTPRequestHandler):
    """Serves the pages and the module, also to sandboxed frames, whose origin is null."""

    def translate_path(self, path: str) -> str:
        return str(MODULE) if path == "/whitelie.js" else super().translate_path(path)

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@dataclass
class Shop:
    """Pages, and the service that decides for them."""

    pages: str
    service: str
    key: str

    def create(self, **fields: Any) -> str:
        """Create an experiment and return its id."""
        body = {"name": "Shop", "arms": [{"key": arm} for arm in ARMS], "epsilon": 1.0}
        times = {"window": 1, "spread": 1}
        return str(self._ask("POST", "/v1/experiments", json=body | times | fields).json()["id"])

    def counts(self, experiment: str) -> tuple[int, int, int]:
        """Return the decisions, the reports, and the ones among them."""
        arms = self._ask("GET", f"/v1/experiments/{experiment}/results").json()["arms"]
        ones = sum(arm["answered"] * (arm["raw_rate"] or 0) for arm in arms)
        return sum(arm["issued"] for arm in arms), sum(arm["answered"] for arm in arms), round(ones)

    def outcomes(self) -> Counter[str]:
        """Return how many reports ever came, of any experiment and in whatever way, by outcome."""
        counts = re.findall(
            r'^whitelie_reports_total\{outcome="(\w+)"\} (\d+)',
            self._ask("GET", "/metrics").text,
            re.M,
        )
        return Counter({outcome: int(number) for outcome, number in counts})

    def address(
        self, page: str, experiment: str | None, options: dict[str, Any], sticky: bool = False
    ) -> str:
        """Return where a page is that gives these options to the client."""
        given = {"server": self.service, "key": self.key, "minSpread": 1, "timeout": 30_000}
        orders = {"options": given | options, "experiment": experiment, "sticky": sticky}
        return f"{self.pages}/{page}?orders={quote(json.dumps(orders))}"

    def _ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        answer = httpx.request(method, self.service + path, headers=headers, timeout=60, **given)
        assert answer.is_success, answer.text
        return answer


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    handler = partial(Pages, directory=str(HERE / "pages"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages:
        Thread(target=pages.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{pages.server_port}"
        with closing(SQLiteStore(folder / "whitelie.db")) as store:
            key = keys.create(store, Key("shop", "publishable", b"", (origin,), 10**6))
        with (
            Server(folder / "whitelie.db", folder / "log", "--per-address", "1000000") as server,
            ThreadPoolExecutor() as threads,
        ):
            threads.submit(server.ready).result()  # Playwright has an event loop in this thread
            yield Shop(origin, f"http://127.0.0.1:{server.port}", key)
        pages.shutdown()


@dataclass
class Device:
    """A browser's profile: what its pages ask of the service, warn of and stumble over."""

    shop: Shop
    context: BrowserContext
    before: Counter[str]
    requests: list[Request] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, shop: Shop, context: BrowserContext) -> "Device":
        device = cls(shop, context, shop.outcomes())
        context.set_default_timeout(HANG_TIMEOUT_SECONDS * SECOND)
        context.on("request", device._request)
        context.on("weberror", lambda error: device.errors.append(str(error.error)))
        context.on(
            "console",
            lambda said: device.warnings.append(said.text) if said.type == "warning" else None,
        )
        return device

    def open(
        self,
        experiment: str | None = None,
        page: Page | None = None,
        clock: int = 0,
        sticky: bool = False,
        **options: Any,
    ) -> Page:
        """Show the shop, in a new tab unless told otherwise, on a clock that is wrong by this."""
        page = page or self.context.new_page()
        if clock:
            page.add_init_script(SET_CLOCK % clock)
        page.goto(self.shop.address("shop.html", experiment, options, sticky))
        page.wait_for_selector("body[data-shown]")
        return page

    @property
    def reports(self) -> list[Any]:
        """The bodies of all reports that pages have tried to send."""
        return [request.post_data_json for request in self._to("/v1/feedback")]

    @property
    def questions(self) -> list[Request]:
        return self._to("/decisions")

    @property
    def heard(self) -> dict[str, int]:
        """What the service has heard from this device, by outcome."""
        return dict(self.shop.outcomes() - self.before)

    def settled(self, page: Page) -> None:
        """Wait until all stored reports are sent and answered."""
        eventually(page, lambda: not stored(page))

    def come_back(self, page: Page, report: dict[str, Any]) -> None:
        """Visit again as soon as a report may leave, by the visit's clock; the page stays open."""
        eventually(page, lambda: bool(page.evaluate("Date.now()") > report["due"] + CLOCKS))
        assert self.reports == []
        self.settled(self.open(clock=MINUTE))

    def check(self, experiment: str, report: dict[str, Any]) -> None:
        """One report was sent, as stored, after its time; and nothing comes later."""
        self.check_once(experiment, report)
        (request,) = self._to("/v1/feedback")
        assert request.timing["startTime"] >= report["due"] - CLOCKS

    def check_once(self, experiment: str, report: dict[str, Any], decisions: int = 1) -> None:
        """One report was counted, as stored; and nothing comes later."""
        self.open(clock=2 * DAY).evaluate("client.flush()")
        sent = {"token": report["token"], "bit": report["bit"]}
        assert [each for each in self.reports if each != sent] == []
        assert self.shop.counts(experiment) == (decisions, 1, report["bit"])
        assert self.heard == {"accepted": 1}
        assert self.errors == []

    def check_silence(self, experiment: str, decisions: int = 1) -> None:
        """Nothing was reported, nor will be."""
        self.open(clock=2 * DAY).evaluate("client.flush()")
        assert self.reports == []
        assert self.shop.counts(experiment) == (decisions, 0, 0)
        assert self.heard == {}
        assert self.errors == []

    def _to(self, end: str) -> list[Request]:
        return [request for request in self.requests if request.url.endswith(end)]

    def _request(self, request: Request) -> None:
        if request.url.startswith(self.shop.service):
            self.requests.append(request)


@pytest.fixture
def device(shop: Shop, chromium: Browser) -> Iterator[Device]:
    with chromium.new_context() as context:
        yield Device.of(shop, context)


def eventually(page: Page, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; the page and its events go on meanwhile."""
    for _ in range(round(HANG_TIMEOUT_SECONDS / 0.05)):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not in {HANG_TIMEOUT_SECONDS} seconds")


def stored(page: Page) -> list[dict[str, Any]]:
    """Return the reports that wait on the device."""
    return [json.loads(text) for text in page.evaluate(STORED)]


def seen(page: Page) -> dict[str, Any]:
    """Return the report that the page has stored, even if it is sent and gone."""
    report: dict[str, Any] = page.evaluate("report")
    return report


def shown(page: Page) -> str:
    return page.inner_text("#headline")


def click(page: Page) -> dict[str, Any]:
    """Click on the offer, and return the report as it is stored then."""
    page.click("#buy")
    assert page.inner_text("#buy") == "Bought"
    return seen(page)


# The way of a report ------------------------------------------------------------------------------


@pytest.mark.parametrize("clicks", [False, True])
def test_one_report_comes_at_its_drawn_time(shop: Shop, device: Device, clicks: bool) -> None:
    experiment = shop.create(window=2)
    page = device.open(experiment, sending="when-due")
    assert shown(page) in ARMS
    report = click(page) if clicks else seen(page)
    assert report["until"] <= report["due"] <= report["until"] + SECOND
    device.settled(page)
    device.check(experiment, report)
    assert len(device.reports) == len(device.questions) == 1
    assert device.warnings == []


@pytest.mark.parametrize("clicks", [False, True])
def test_a_report_leaves_at_the_next_visit_and_never_in_its_own(
    shop: Shop, device: Device, clicks: bool
) -> None:
    """The page stays open past the time of its report, and is even told to send."""
    experiment = shop.create(window=1)
    page = device.open(experiment)
    report = click(page) if clicks else seen(page)
    page.wait_for_timeout(3 * SECOND)
    page.evaluate("client.flush()")
    assert page.evaluate("Date.now()") > report["until"] + SECOND
    assert device.reports == []
    assert len(stored(page)) == 1
    device.come_back(page, report)
    device.check(experiment, report)
    assert len(device.reports) == len(device.questions) == 1
    assert device.warnings == []


def test_a_click_makes_it_the_other_bit(shop: Shop, device: Device) -> None:
    """Decides until the bits differ: that is seen in storage only."""
    experiment = shop.create(window=600)
    page = device.open(experiment)
    while (report := seen(page))["bits"] not in ([0, 1], [1, 0]):
        page.evaluate("client.forget()")
        page.close()
        page = device.open(experiment)
    assert report["bit"] == report["bits"][0]
    assert click(page)["bit"] == report["bits"][1]
    device.settled(device.open(clock=DAY))
    report["bit"] = report["bits"][1]
    device.check_once(experiment, report, len(device.questions))


def reload(device: Device, page: Page) -> Page:
    page.goto(device.shop.address("shop.html", None, {}))
    page.reload()
    return page


def crash(device: Device, page: Page) -> Page:
    crashed: list[Page] = []
    page.on("crash", lambda crashing: crashed.append(crashing))  # noqa: PLW0108 (Playwright counts its parameters)
    with pytest.raises(Error):
        page.goto("chrome://crash")
    after = device.open()
    eventually(after, lambda: crashed == [page])
    return after


def close(device: Device, page: Page) -> Page:
    page.close()
    return device.open()


def second_tab(device: Device, page: Page) -> Page:
    device.open()
    return page


@pytest.mark.parametrize("interrupt", [reload, crash, close, second_tab])
def test_one_report_comes_in_spite_of(
    shop: Shop, device: Device, interrupt: Callable[[Device, Page], Page]
) -> None:
    experiment = shop.create(window=1)
    page = device.open(experiment)
    report = click(page)
    page = interrupt(device, page)
    device.come_back(page, report)
    device.check(experiment, report)
    assert len(device.reports) == 1
    assert device.warnings == []


def test_a_sticky_choice_is_one_decision_for_all_tabs(shop: Shop, device: Device) -> None:
    experiment = shop.create(window=600)
    page = device.open(experiment, sticky=True)
    other = device.open(experiment, sticky=True)
    other.reload()
    other.wait_for_selector("body[data-shown]")
    assert shown(page) == shown(other)
    report = click(other)
    assert report["bit"] == report["bits"][1]
    device.settled(device.open(clock=DAY))
    device.check_once(experiment, report)
    assert len(device.reports) == len(device.questions) == 1


@contextmanager
def started(chromium: Browser, profile: Path) -> Iterator[BrowserContext]:
    """Start a browser of its own on a profile, and kill it at the end."""
    executable = next(path for name in EXECUTABLES if (path := shutil.which(name)))
    announced = profile / "DevToolsActivePort"
    announced.unlink(missing_ok=True)
    options = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    with subprocess.Popen(
        [executable, *ARGUMENTS, *options, "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            port, *_ = until(lambda: announced.read_text().split() if announced.exists() else None)
            browser = chromium.browser_type.connect_over_cdp(f"http://127.0.0.1:{port}")
            yield browser.contexts[0]
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_one_report_comes_after_a_kill(shop: Shop, chromium: Browser, tmp_path: Path) -> None:
    """The browser is killed as soon as its disk has what the page has stored."""
    experiment = shop.create(window=600)
    with started(chromium, tmp_path) as context:
        device = Device.of(shop, context)
        page = device.open(experiment)
        report = click(page)
        (text,) = page.evaluate(STORED)
        until(lambda: on_disk(tmp_path, text))
    assert device.heard == {}
    with started(chromium, tmp_path) as context:
        after = Device.of(shop, context)
        after.settled(after.open(clock=DAY))
        after.check_once(experiment, report)
        assert len(after.reports) == 1
        assert device.warnings == after.warnings == []


def on_disk(profile: Path, text: str) -> bool:
    files = [path for path in profile.glob("Default/Local Storage/**/*") if path.is_file()]
    return any(text.encode() in path.read_bytes() for path in files)


# Leaving ------------------------------------------------------------------------------------------


def navigate(page: Page) -> None:
    page.click("text=Leave")
    page.wait_for_url("**/plain.html")


def shut(page: Page) -> None:
    page.close(run_before_unload=True)


def hide(page: Page) -> None:
    page.evaluate("""() => {
      Object.defineProperty(document, "visibilityState", { value: "hidden" });
      document.dispatchEvent(new Event("visibilitychange"));
      window.dispatchEvent(new PageTransitionEvent("pagehide"));
    }""")
    page.close()


@pytest.mark.parametrize("leave", [navigate, shut, hide])
def test_leaving_sends_nothing_early(
    shop: Shop, device: Device, leave: Callable[[Page], None]
) -> None:
    """The one report that ever reaches the service comes from the next visit."""
    experiment = shop.create(window=600)
    page = device.open(experiment)
    report = click(page)
    leave(page)
    assert device.reports == []
    assert device.heard == {}
    device.settled(device.open(clock=DAY))
    device.check_once(experiment, report)
    assert len(device.reports) == 1


def test_page_errors_are_recorded(device: Device) -> None:
    """Negative control: nobody catches these."""
    page = device.open()
    page.evaluate("() => { setTimeout(() => { throw new Error('thrown'); }) }")
    page.evaluate("() => { Promise.reject(new Error('rejected')) }")
    eventually(page, lambda: len(device.errors) == 2)


@pytest.mark.parametrize("farewell", PAGEHIDE_SENDERS)
def test_requests_sent_on_pagehide_are_recorded(shop: Shop, device: Device, farewell: str) -> None:
    """Negative control: what a page sends as it closes is heard."""
    page = device.open(shop.create(window=600))
    page.evaluate(
        f"""([url, body]) => addEventListener("pagehide", () => {PAGEHIDE_SENDERS[farewell]})""",
        [f"{shop.service}/v1/feedback", json.dumps({"token": stored(page)[0]["token"], "bit": 1})],
    )
    page.close(run_before_unload=True)
    eventually(device.context.new_page(), lambda: device.heard == {"accepted": 1})


# Tabs ---------------------------------------------------------------------------------------------

TOGETHER = """([experiment, options, number, at]) => {
  window.decided = new Promise((resolve) => setTimeout(async () => {
    const asked = Array.from({ length: number }, () => client.decide(experiment, options));
    resolve((await Promise.all(asked)).map(({ arm }) => arm));
  }, at - Date.now()));
}"""
ROUNDS = 4


def decide_together(
    pages: list[Page], experiment: str, number: int = 1, **options: Any
) -> list[str]:
    """Let every page decide so many times, all in the same instant; return the arms."""
    at = pages[0].evaluate("Date.now()") + 100 + 20 * len(pages)
    for page in pages:
        page.evaluate(TOGETHER, [experiment, options, number, at])
    return [arm for page in pages for arm in page.evaluate("decided")]


def test_tabs_that_decide_at_once_send_no_more_than_the_cap(shop: Shop, device: Device) -> None:
    tabs = [device.open() for _ in range(10)]
    for round_ in range(1, ROUNDS + 1):
        experiment = shop.create(window=600)
        arms = decide_together(tabs, experiment, 3)
        assert set(arms) <= set(ARMS)
        eventually(tabs[0], lambda: len(stored(tabs[0])) >= 10)
        tabs[0].wait_for_timeout(300)
        after = device.open(clock=DAY)
        device.settled(after)
        assert shop.counts(experiment)[:2] == (30, 10)
        assert len(device.reports) == 10 * round_
        after.evaluate("client.forget()")
        after.close()
        eventually(tabs[-1], lambda: tabs[-1].evaluate("localStorage.length") == 0)
    assert device.errors == device.warnings == []


def test_tabs_that_decide_at_once_share_a_sticky_choice(shop: Shop, device: Device) -> None:
    """One question, one token; all show its arm, and later visits do not wait for a lock."""
    tabs = [device.open() for _ in range(8)]
    for round_ in range(1, ROUNDS + 1):
        experiment = shop.create(window=600)
        arms = decide_together(tabs, experiment, sticky=True)
        assert len(set(arms)) == 1
        assert set(arms) <= set(ARMS)
        assert len(device.questions) == round_
        (mine,) = (each for each in stored(tabs[0]) if each["experiment"] == experiment)
        assert mine["arm"] == arms[0]
    assert device.errors == device.warnings == []


def test_a_decision_that_does_not_stick_waits_for_no_lock(shop: Shop, device: Device) -> None:
    experiment = shop.create(window=600)
    holder, page = device.open(), device.open()
    holder.evaluate(
        """async () => {
      const names = ["whitelie.send", "whitelie.ledger", "whitelie.sticky.%s"];
      const held = names.map((name) => new Promise((done) => navigator.locks.request(name, () => {
        done();
        return new Promise(() => {});
      })));
      await Promise.all(held);
    }""".replace("%s", experiment)
    )
    arm = """([experiment, patience]) => Promise.race([
      client.decide(experiment).then(({ arm }) => arm),
      new Promise((done) => setTimeout(done, patience, "it waits")),
    ])"""
    assert page.evaluate(arm, [experiment, HANG_TIMEOUT_SECONDS * SECOND]) in ARMS


# Storage and network ------------------------------------------------------------------------------

MEMORY = r"whitelie: .*storage"
NOT_TAKEN = r"whitelie: the service did not take a report, which is kept for later"


@pytest.mark.parametrize(("sending", "sent"), [("when-due", 1), ("next-visit", 0)])
def test_blocked_storage(shop: Shop, device: Device, sending: str, sent: int) -> None:
    """Memory ends with the page, and so does what would leave at the next visit; one warning."""
    experiment = shop.create(window=1)
    page = device.context.new_page()
    page.add_init_script(BLOCK_STORAGE)
    device.open(experiment, page, sending=sending)
    assert shown(page) in ARMS
    page.click("#buy")
    if sent:
        eventually(page, lambda: device.heard == {"accepted": 1})
    page.evaluate("client.flush()")
    (warning,) = device.warnings
    assert re.match(MEMORY, warning)
    page.close()
    if sent:
        (report,) = device.reports
        device.check_once(experiment, report)
    else:
        device.check_silence(experiment)


def test_full_storage_shows_the_arm_and_reports_nothing(shop: Shop, device: Device) -> None:
    experiment = shop.create(window=1)
    page = device.context.new_page()
    page.goto(f"{shop.pages}/plain.html")
    page.evaluate(FILL_STORAGE)
    device.open(experiment, page, sending="when-due")
    assert stored(page) == []
    assert shown(page) in ARMS
    page.click("#buy")
    (warning,) = device.warnings
    assert re.match(MEMORY, warning)
    device.check_silence(experiment)


def test_a_sandboxed_frame_has_no_origin_and_shows_the_fallback(shop: Shop, device: Device) -> None:
    experiment = shop.create()
    page = device.context.new_page()
    page.goto(shop.address("frame.html", experiment, {}))
    frame = page.frame_locator("iframe")
    frame.locator("body[data-shown]").wait_for()
    assert frame.locator("#headline").inner_text() == "fallback"
    frame.locator("#buy").click()
    assert frame.locator("#buy").inner_text() == "Bought"
    (warning,) = device.warnings
    assert "check server, key and experiment" in warning
    device.check_silence(experiment, 0)


def test_a_report_waits_until_the_device_is_online(shop: Shop, device: Device) -> None:
    experiment = shop.create(window=600)
    page = device.context.new_page()
    page.clock.install()
    device.open(experiment, page, sending="when-due")
    report = click(page)
    device.context.set_offline(True)
    with device.context.expect_event("requestfailed"):
        page.clock.fast_forward(DAY)
    assert len(stored(page)) == 1
    device.context.set_offline(False)
    page.clock.fast_forward(10 * SECOND)
    device.settled(page)
    device.check_once(experiment, report)
    assert len(device.reports) == 2
    (warning,) = device.warnings
    assert re.match(NOT_TAKEN, warning)


def test_a_device_that_is_offline_shows_the_fallback(shop: Shop, device: Device) -> None:
    experiment = shop.create()
    page = device.open()
    device.context.set_offline(True)
    ask = "async experiment => (await client.decide(experiment, { fallback: { arm: 'mine' } })).arm"
    assert page.evaluate(ask, experiment) == "mine"
    device.context.set_offline(False)
    (warning,) = device.warnings
    assert re.match(NO_DECISION, warning)
    device.check_silence(experiment, 0)


def test_an_answer_that_is_lost_on_its_way(shop: Shop, device: Device) -> None:
    """The service has counted the report, the page does not know: it is sent again, and no more."""
    experiment = shop.create(window=0)
    page = device.context.new_page()

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route("**/v1/feedback", lose)
    with device.context.expect_event("requestfailed"):
        device.open(experiment, page, sending="when-due")
    report = seen(page)
    page.close()
    device.settled(device.open())
    sent = {"token": report["token"], "bit": report["bit"]}
    assert device.reports == [sent, sent]
    assert device.heard == {"accepted": 1, "duplicate": 1}
    assert shop.counts(experiment) == (1, 1, report["bit"])
    assert device.errors == []
    (warning,) = device.warnings
    assert re.match(NOT_TAKEN, warning)


class Elsewhere(BaseHTTPRequestHandler):
    """Decides, and sends those who ask for /moved or report on to another address."""

    def do_OPTIONS(self) -> None:
        self._answer(200, b"")

    def do_POST(self) -> None:
        self.server.heard.append(self.path)  # type: ignore[attr-defined]  # set on the server by this test
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "/moved" in self.path or self.path == "/v1/feedback":
            self._answer(self.server.status, b"")  # type: ignore[attr-defined]  # set on the server by this test
        else:
            self._answer(200, json.dumps({"decisions": [GOOD]}).encode())

    def do_GET(self) -> None:
        self.do_POST()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Access-Control-Allow-Headers", "Authorization")
        self.send_header("Location", "/v1/experiments/elsewhere/decisions")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(device: Device, status: int) -> None:
    """A question shows the fallback; a report stays on the device."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        server.status, server.heard = status, []  # type: ignore[attr-defined]  # set on the server by this test
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert shown(device.open("moved", server=address)) == "fallback"
        page = device.open("headline", server=address)
        assert shown(page) == GOOD["arm"]
        after = device.open(clock=DAY // 1000, server=address)
        after.evaluate("client.flush()")
        assert [each["token"] for each in stored(after)] == [GOOD["token"]]
        asked = ["/v1/experiments/moved/decisions", "/v1/experiments/headline/decisions"]
        assert server.heard == [*asked, "/v1/feedback"]  # type: ignore[attr-defined]  # set on the server by this test
        server.shutdown()


@pytest.mark.parametrize(("clock", "later"), [(-DAY, 0), (DAY, 0), (0, -DAY), (0, DAY)])
def test_a_clock_that_is_wrong_by_a_day(shop: Shop, device: Device, clock: int, later: int) -> None:
    """All the time, or set between two visits."""
    experiment = shop.create()
    page = device.open(experiment, clock=clock, sending="when-due")
    report = click(page)
    page.close()
    page = device.open(clock=clock + later, sending="when-due")
    device.settled(page)
    device.check_once(experiment, report)
    assert len(device.reports) == 1
    assert device.warnings == []


# Limits -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """An experiment and options, which do not agree, and what the page warns of."""

    fields: dict[str, Any]
    options: dict[str, Any]
    warning: str


LIMITS = {
    "epsilon": Limit({"epsilon": 2.0}, {}, r"whitelie: .*maxEpsilon"),
    "spread": Limit({}, {"minSpread": 2}, r"whitelie: .*minSpread"),
    "consent": Limit({}, {"consent": False}, ""),
    "cap": Limit({}, {"cap": {"epsilon": 0.5, "days": 1}}, ""),
}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_a_limit_shows_the_arm_and_reports_nothing(
    shop: Shop, device: Device, limit: Limit
) -> None:
    usual, refused = shop.create(window=600), shop.create(**limit.fields)
    device.open(usual).evaluate("client.forget()")
    page = device.open(refused, **limit.options)
    assert shown(page) in ARMS
    page.click("#buy")
    assert stored(page) == []
    one, other = (looks(request) for request in device.questions)
    assert other == json.loads(json.dumps(one).replace(f"/{usual}/", f"/{refused}/"))
    assert len(device.warnings) == bool(limit.warning)
    assert re.match(limit.warning, "".join(device.warnings))
    device.check_silence(refused)


def test_an_exhausted_cap_is_silent(shop: Shop, device: Device) -> None:
    """The first decision is reported; the second one looks the same, and is not."""
    experiment = shop.create(window=600)
    cap = {"epsilon": 1.5, "days": 30}
    page = device.open(experiment, cap=cap)
    report = click(page)
    other = device.open(experiment, cap=cap)
    assert shown(other) in ARMS
    assert click(other) == report
    one, two = (looks(request) for request in device.questions)
    assert one == two
    device.settled(device.open(clock=DAY))
    device.check_once(experiment, report, 2)
    assert len(device.reports) == 1
    assert device.warnings == []


def looks(request: Request) -> dict[str, Any]:
    """What the service sees of a request."""
    headers = request.all_headers()
    return {"url": request.url, "method": request.method, "body": request.post_data, **headers}


# Bad input ----------------------------------------------------------------------------------------

NO_DECISION = r"whitelie: no decision, check server, key and experiment"
WRONG = {
    "key": {"key": "pk_of_somebody_else"},
    "address": {"server": "nonsense"},
    "scheme": {"server": "nonsense://127.0.0.1"},
}


@pytest.mark.parametrize("options", WRONG.values(), ids=WRONG)
def test_wrong_options_show_the_fallback(
    shop: Shop, device: Device, options: dict[str, Any]
) -> None:
    experiment = shop.create()
    page = device.open(experiment, **options)
    assert shown(page) == "fallback"
    page.click("#buy")
    page.evaluate("experiment => client.decide(experiment)", experiment)
    (warning,) = device.warnings
    assert re.match(NO_DECISION, warning)
    device.check_silence(experiment, 0)


@pytest.mark.parametrize("listens", [False, True])
def test_a_server_that_does_not_answer(shop: Shop, device: Device, listens: bool) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        nowhere = f"http://127.0.0.1:{server.getsockname()[1]}"
        page = device.open("headline", server=nowhere, timeout=200)
        assert shown(page) == "fallback"
        page.click("#buy")
    (warning,) = device.warnings
    assert re.match(NO_DECISION + (".*no answer in time" if listens else ""), warning)
    assert device.errors == []


def test_a_page_of_another_origin_shows_the_fallback(shop: Shop, device: Device) -> None:
    experiment = shop.create()
    page = device.context.new_page()
    page.goto(shop.address("shop.html", experiment, {}).replace("127.0.0.1", "localhost", 1))
    page.wait_for_selector("body[data-shown]")
    assert shown(page) == "fallback"
    (warning,) = device.warnings
    assert re.match(NO_DECISION, warning)
    device.check_silence(experiment, 0)


def test_an_experiment_that_is_not_known_shows_the_fallback(shop: Shop, device: Device) -> None:
    page = device.open("../../nothing of this name?")
    assert shown(page) == "fallback"
    (warning,) = device.warnings
    assert re.match(f"{NO_DECISION}.*404", warning)


GOOD = {
    "arm": "kind",
    "token": "made up",
    "mechanism": {"p00": 0.6, "p11": 0.6, "window": 1, "spread": 1},
    "expires_in": 100,
}
MALFORMED = {
    "nothing": "",
    "null": "null",
    "no decision": '{"decisions": []}',
    "no coin": json.dumps({"decisions": [{**GOOD, "mechanism": None}]}),
    "a chance of 2": json.dumps({"decisions": [{**GOOD, "mechanism": {"p00": 2, "p11": 2}}]}),
    "no token": json.dumps({"decisions": [{**GOOD, "token": 7}]}),
}


def test_malformed_answers_show_the_fallback(shop: Shop, device: Device) -> None:
    """Every page warns once. Then the service is well again."""
    experiment = shop.create(window=0)
    for name, body in MALFORMED.items():
        page = device.context.new_page()
        cross = {"Access-Control-Allow-Origin": "*"}
        page.route("**/decisions", lambda route: route.fulfill(body=body, headers=cross))
        device.open(experiment, page)
        assert shown(page) == "fallback", name
        page.click("#buy")
        page.evaluate("experiment => client.decide(experiment)", experiment)
        assert len(device.warnings) == 1, (name, device.warnings)
        assert re.match(NO_DECISION, device.warnings.pop())
        assert stored(page) == []
        page.close()
    page = device.open(experiment, sending="when-due")
    report = seen(page)
    device.settled(page)
    device.check_once(experiment, report)
    assert device.warnings == []
