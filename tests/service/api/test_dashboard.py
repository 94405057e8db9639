"""The dashboard in Chromium, against a server in a process of its own."""

import gzip
import html
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect
from plotly.offline import get_plotlyjs

from helpers.chromium_page import FACTS, READABLE
from helpers.filled_stores import fill
from helpers.in_process_service import KEYS
from helpers.service_process import ADMIN_KEY, Server
from whitelie import RandomizedResponse
from whitelie.service.api.static_files import POLICY, plotly_path

STATES = ("empty", "learning", "certified", "shipped", "alarmed")
CHARTS = ("estimates", "shares", "chances")
MOST_POINTS = 240
HANG_TIMEOUT_SECONDS = 120.0
"""Seconds after which a test gives up; nothing is said about speed."""

KEEP_KEY = "sessionStorage.setItem('whitelie key', {key!r})"

WATCH_SHIFTS = """() => {
  window.shifts = []
  new PerformanceObserver((list) => {
    for (const shift of list.getEntries()) window.shifts.push(shift.value)
  }).observe({type: 'layout-shift', buffered: false})
}"""

WATCH_PLOTS = """() => {
  window.plots = [...document.querySelectorAll('.plot')].map((p) => p.querySelector('.main-svg'))
  window.drawn = 0
  const react = Plotly.react
  Plotly.react = (...given) => { window.drawn++; return react(...given) }
  Plotly.newPlot = () => { throw Error('a chart is made anew') }
}"""


@dataclass
class Site:
    """A server with experiments in all states."""

    port: int
    folder: Path

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Send a request with the admin key."""
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        answer = httpx.request(method, self.origin + path, headers=headers, timeout=60, **given)
        assert answer.is_success, answer.text
        return answer

    def results(self, slug: str) -> Any:
        return self.ask("GET", f"/v1/experiments/{slug}/results").json()

    def create(self, name: str, *keys: str, **fields: Any) -> str:
        """Create an experiment that waits for nothing, and return its id."""
        arms = [{"key": key} for key in keys or ("a", "b", "c")]
        body = {"name": name, "arms": arms, "epsilon": 1, "window": 0, "spread": 60, **fields}
        return str(self.ask("POST", "/v1/experiments", json=body).json()["id"])

    def visit(self, slug: str, count: int) -> None:
        """Let visitors come and report; every third bit is 1."""
        path = f"/v1/experiments/{slug}/decisions"
        decisions = self.ask("POST", path, json={"count": count}).json()["decisions"]
        items = [
            {"token": made["token"], "bit": int(n % 3 == 0)} for n, made in enumerate(decisions)
        ]
        self.ask("POST", "/v1/feedback", json={"items": items})


@dataclass
class Crowd:
    """People who like arms at these rates; rewards and coins are those of a seed."""

    site: Site
    slug: str
    rates: dict[str, float]
    draw: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def visit(self, count: int, **asked: Any) -> None:
        """Let so many people come and report at once."""
        path = f"/v1/experiments/{self.slug}/decisions"
        items = []
        for made in self.site.ask("POST", path, json={"count": count} | asked).json()["decisions"]:
            channel = RandomizedResponse(p00=made["mechanism"]["p00"], p11=made["mechanism"]["p11"])
            mean = channel.mean_feedback(self.rates[made["arm"]])
            items.append({"token": made["token"], "bit": int(self.draw.random() < mean)})
        self.site.ask("POST", "/v1/feedback", json={"items": items})

    def until_certified(self) -> Any:
        """Let people come until an arm is certified; return the results."""
        for _ in range(30):
            self.visit(200)
            results = self.site.results(self.slug)
            if results["certificate"]["state"] == "certified":
                return results
        raise AssertionError("no certificate")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("dashboard")
    fill(folder / "whitelie.db")
    with Server(folder / "whitelie.db", folder / "log") as server, ThreadPoolExecutor() as threads:
        threads.submit(server.ready).result()  # Playwright has an event loop in this thread
        yield Site(server.port, folder)


@dataclass
class OpenPage:
    """A page, what it asked for, and what the browser complained of."""

    page: Page
    site: Site
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, slug: str) -> None:
        """Show an experiment, with its charts drawn where it has reports."""
        self.page.goto(f"{self.site.origin}/#/experiments/{slug}")
        expect(self.page.locator(f'[data-id="{slug}"]')).to_be_visible()
        expect(self.page.locator(".live")).to_have_text("live")
        if self.page.locator(".charts").is_visible():
            for chart in CHARTS:
                plot = self.page.locator(f".{chart} .plot")
                plot.scroll_into_view_if_needed()
                expect(plot.locator(".main-svg").first).to_be_visible()
            self.page.evaluate("scrollTo(0, 0)")

    def check(self) -> None:
        """No other host was asked, and the browser has nothing to complain of."""
        assert not self.complaints
        strange = [url for url in self.requests if not url.startswith((self.site.origin, "blob:"))]
        assert not strange
        assert not [url for url in self.requests if ADMIN_KEY in url or KEYS["reader"] in url]

    def shows(self, slug: str, is_shown: Callable[[Any], bool]) -> None:
        """Wait until the page shows results that are asked for at the same time.

        Shares of the last hour and decisions out of time move with the clock: no answer of a minute
        ago is a measure of a page that is live.
        """
        end = time.monotonic() + HANG_TIMEOUT_SECONDS
        while not is_shown(results := self.site.results(slug)):
            assert time.monotonic() < end, (results, self.page.inner_text("main"))
            self.page.wait_for_timeout(100)

    def faults(self) -> list[str]:
        """Return what axe finds serious or critical."""
        violations = Axe().run(self.page).response["violations"]
        bad = [each for each in violations if each["impact"] in ("serious", "critical")]
        return [f"{each['id']}: {each['nodes'][0]['html']}" for each in bad]


Look = Callable[..., Any]


@pytest.fixture
def look(chromium: Browser, site: Site) -> Look:
    @contextmanager
    def looking(
        key: str | None = ADMIN_KEY, width: int = 1280, *, dark: bool = False, height: int = 900
    ) -> Iterator[OpenPage]:
        with chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            permissions=["clipboard-read", "clipboard-write"],
        ) as context:
            if key:
                context.add_init_script(KEEP_KEY.format(key=key))
            page = context.new_page()
            opened = OpenPage(page, site)
            page.on("request", lambda request: opened.requests.append(request.url))
            page.on("pageerror", lambda error: opened.complaints.append(str(error)))
            page.on(
                "console",
                lambda said: (
                    opened.complaints.append(said.text)
                    if said.type in ("error", "warning")
                    else None
                ),
            )
            page.on("dialog", lambda dialog: opened.complaints.append(dialog.message))
            yield opened

    return looking


# What is served


def test_the_form_offers_the_corrected_policies_of_the_list(site: Site) -> None:
    choices = [
        ["TS-CF", "Thompson sampling (TS-CF)"],
        ["kl-UCB-CF", "kl-UCB-CF"],
        ["UCB-CF", "UCB-CF"],
        ["IMED-CF", "IMED-CF"],
        ["TopTwo-CF", "top-two sampling (TopTwo-CF)"],
    ]
    (data,) = re.findall('data-policies="([^"]*)"', httpx.get(site.origin).text)
    assert json.loads(html.unescape(data)) == choices


def test_the_page_is_served_with_a_strict_policy(site: Site) -> None:
    answer = httpx.get(site.origin)
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    for path in re.findall(r'(?:href|src)="(/[^"]+)"', answer.text):
        part = httpx.get(site.origin + path)
        assert part.status_code == 200, path
        again = httpx.get(site.origin + path, headers={"If-None-Match": part.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert httpx.head(site.origin).status_code == 200
    assert httpx.post(site.origin).status_code == 405
    assert httpx.get(f"{site.origin}/dashboard/..%2fpages.py").status_code == 404


def test_plotly_is_served_as_its_package_has_it(site: Site) -> None:
    path = plotly_path()
    assert path is not None
    with httpx.stream("GET", site.origin + path) as answer:
        packed = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert gzip.decompress(packed).decode() == get_plotlyjs()
    plain = httpx.get(site.origin + path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == get_plotlyjs()


def test_admins_learn_how_many_rows_there_are(site: Site) -> None:
    tables = site.ask("GET", "/v1/stored").json()["tables"]
    known = {"epochs", "experiments", "keys", "counts", "steps", "shown", "spent"}
    assert set(tables) == known
    assert tables["experiments"] >= 6


def test_results_say_in_which_minute_the_last_report_came(site: Site) -> None:
    slug = site.create("Last report")
    assert site.results(slug)["last_report"] is None
    before = time.time()
    site.visit(slug, 1)
    last = datetime.fromisoformat(site.results(slug)["last_report"])
    assert last.second == last.microsecond == 0
    assert before - 60 < last.timestamp() <= time.time()


# How it looks


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_state_is_readable(look: Look, site: Site, width: int, dark: bool) -> None:
    shots = site.folder / "shots"
    with look(width=width, dark=dark) as opened:
        for state in STATES:
            opened.open(state)
            facts = opened.page.evaluate(FACTS)
            assert max(facts["scroll_width"], facts["inner_width"]) <= width, state
            assert facts["contrast"] >= READABLE, state
            assert facts["headings"][0] == 1
            assert facts["headings"].count(1) == 1
            opened.shows(
                state, lambda results: results["sentence"] in opened.page.inner_text("body")
            )
            name = f"{state}-{width}-{'dark' if dark else 'light'}.png"
            opened.page.screenshot(path=shots / name, full_page=True)
        opened.check()
    print(f"screenshots: {shots}")


def test_axe_finds_nothing_serious(look: Look, site: Site) -> None:
    with look() as opened:
        for state in ("empty", "learning", "certified"):
            opened.open(state)
            assert opened.faults() == [], state
        opened.page.get_by_role("button", name="Ship the winner…").click()
        assert opened.faults() == []
        for path, there in (("/#/", ".list li .said"), ("/#/new", "form.create")):
            opened.page.goto(site.origin + path)
            expect(opened.page.locator(there).first).to_be_visible()
            assert opened.faults() == [], path
    with look(width=390, dark=True) as opened:
        opened.open("alarmed")
        assert opened.faults() == []
        opened.page.get_by_role("button", name="Stop…").click()
        assert opened.faults() == []
        opened.open("shipped")
        assert opened.faults() == []
    with look(None, dark=True) as opened:
        opened.page.goto(site.origin)
        expect(opened.page.get_by_label("key")).to_be_visible()
        assert opened.faults() == []


def test_states_say_what_they_must(look: Look, site: Site) -> None:
    with look() as opened:
        page = opened.page
        opened.open("empty")
        snippet = page.locator(".waiting pre")
        expect(snippet).to_contain_text(f'server: "{site.origin}"')
        expect(snippet).to_contain_text('decide("empty")')
        expect(page.locator(".waiting")).to_contain_text("Last report seen: never")
        page.locator(".waiting").get_by_role("button", name="Copy").click()
        expect(page.locator("#notice")).to_have_text("Copied.")
        assert page.evaluate("navigator.clipboard.readText()") == snippet.text_content()
        opened.open("alarmed")
        expect(page.get_by_role("button", name="Ship the winner…")).to_be_disabled()
        assert site.results("alarmed")["alarms"]
        opened.shows(
            "alarmed",
            lambda results: all(
                alarm["message"] in page.locator(".alarms").inner_text()
                for alarm in results["alarms"]
            ),
        )
        hashed = site.ask("GET", "/v1/experiments/alarmed/privacy").json()["hash"]
        expect(page.locator(".hash")).to_have_text(hashed)
        expect(page.get_by_text("odds about a click by at most a factor eε = 2.72")).to_be_visible()
        tables = site.ask("GET", "/v1/stored").json()["tables"]
        row = page.get_by_role("row").filter(has=page.get_by_text("keys", exact=True))
        expect(row).to_contain_text(str(tables["keys"]))
        opened.check()


def test_health_says_what_became_of_decisions_and_how_late(look: Look, site: Site) -> None:
    slug = site.create("Became")
    site.visit(slug, 12)
    site.ask("POST", f"/v1/experiments/{slug}/decisions", json={"count": 9})
    with look() as opened:
        opened.open(slug)
        panel = opened.page.locator("#health-panel")
        head = panel.get_by_role("columnheader").all_text_contents()
        assert head == ["Arm", "Answered", "Pending", "Overdue", "Missing", "Redeemed"]
        columns = ("answered", "pending", "overdue", "missing")

        def became(place: int) -> list[str]:
            row = panel.locator("tbody tr").nth(place)
            cells: list[str] = row.locator("td").all_text_contents()
            return cells[: len(columns)]

        opened.shows(
            slug,
            lambda results: all(
                became(place) == [f"{arm[column]:,}" for column in columns]
                for place, arm in enumerate(results["arms"])
            ),
        )
        expect(opened.page.get_by_text("of those made")).to_be_hidden()
        opened.open("learning")
        late = re.compile(r"\d\d\u202f% of those made 1 hour ago")
        expect(opened.page.locator("#health-panel")).to_contain_text(late)
        opened.check()
    with look(KEYS["reader"]) as opened:
        opened.open("learning")
        panel = opened.page.locator("#health-panel")
        expect(panel.get_by_text("of those made")).to_be_hidden()
        expect(panel.get_by_text("Missing reports")).to_be_hidden()
        expect(panel).to_contain_text("Pending: not answered, as far as readers see.")
        for arm in range(panel.locator("tbody tr").count()):
            cells = panel.locator("tbody tr").nth(arm).locator("td").all_text_contents()
            assert all(re.fullmatch(r"[\d,]+", cell) for cell in cells[:2])
            assert cells[2:] == ["–", "–", "–"]
        rows = opened.page.locator("table", has_text="Rows in this server").locator("tbody tr")
        expect(rows).to_have_count(4)
        expect(rows.filter(has_text="batches of reports")).to_have_count(1)
        opened.check()


@pytest.mark.parametrize("sending", ["next-visit", "when-due"])
def test_an_experiment_is_created_with_its_sending_rule(
    look: Look, site: Site, sending: str
) -> None:
    with look() as opened:
        page = opened.page
        page.goto(f"{site.origin}/#/new")
        page.get_by_label("Name").fill(f"Sends {sending}")
        if sending != "next-visit":  # which is the first choice
            page.get_by_label("When reports leave").select_option(sending)
        page.get_by_role("button", name="Create").click()
        slug = f"sends-{sending}"
        expect(page.locator(f'[data-id="{slug}"]')).to_be_visible()
        assert site.ask("GET", f"/v1/experiments/{slug}").json()["sending"] == sending
        snippet = page.locator(".waiting pre")
        expect(snippet).to_contain_text("new Whitelie(")
        told = ', sending: "when-due" })' in (snippet.text_content() or "")
        assert told == (sending == "when-due")
        words = {"next-visit": "at the next visit", "when-due": "at once if the page is open"}
        expect(page.locator(".statement")).to_contain_text(words[sending])
        opened.check()


def test_the_table_has_noisy_and_corrected_numbers(look: Look, site: Site) -> None:
    with look() as opened:
        opened.open("certified")
        row = opened.page.locator(".board tbody tr").first

        def has_the_best(results: Any) -> bool:
            best = max(results["arms"], key=lambda arm: arm["probability_best"])
            columns = ("raw_rate", "estimate", "traffic_share")
            numbers = [f"{100 * best[column]:.1f}\u202f%" for column in columns]
            name, text = row.locator(".name").inner_text(), row.inner_text()
            bar = str(row.get_by_role("img").get_attribute("aria-label"))
            is_named = name == best["key"] and bar.startswith(f"{100 * best['lower']:.1f}\u202f%")
            return is_named and all(number in text for number in numbers)

        opened.shows("certified", has_the_best)


# Time and life


def test_ten_thousand_minutes_are_drawn_with_few_points(look: Look, site: Site) -> None:
    with look(height=2400) as opened:
        page = opened.page
        with page.expect_response("**/history?*") as answered:
            opened.open("long")
        assert 9_500 < len(answered.value.json()["buckets"]) <= 10_000
        # The last point of a chart is what the table says: both have the service's formulas.
        traces = page.evaluate(
            "[...document.querySelectorAll('.plot')].map(p => p.data.map(t => [t.name, t.y]))"
        )
        assert all(2 < len(y) <= MOST_POINTS for chart in traces for _, y in chart)
        arms = site.results("long")["arms"]
        for place, arm in enumerate(arms):
            drawn = [traces[0][2 * place][1][-1], traces[0][2 * place + 1][1][-1]]
            assert drawn == pytest.approx([arm["lower"], arm["upper"]], abs=1e-6)
            assert traces[0][6 + place][1][-1] == pytest.approx(arm["estimate"], abs=1e-9)
            assert traces[2][place][1][-1] == pytest.approx(arm["probability_best"], abs=0.02)
        page.get_by_role("radio", name="1 day").check()
        expect(page.get_by_role("radio", name="1 day")).to_be_checked()
        opened.check()


def test_live_updates_move_points_and_nothing_else(look: Look, site: Site) -> None:
    with look(height=2400) as opened:
        page = opened.page
        opened.open("long")
        page.evaluate(WATCH_SHIFTS)
        page.wait_for_timeout(1200)
        while page.evaluate("shifts.splice(0).length"):  # it is still being drawn
            page.wait_for_timeout(1000)
        page.evaluate(WATCH_PLOTS)
        start = time.monotonic()
        for _ in range(3):
            site.visit("long", 30)
            page.wait_for_timeout(1000)
        reports = site.results("long")["reports"]
        expect(page.locator(".sentence")).to_contain_text(f"{reports:,} reports")
        seconds = time.monotonic() - start
        assert 1 <= page.evaluate("drawn") <= len(CHARTS) * (seconds + 1)
        drawn = "plots.every(svg => svg.isConnected) && [...document.querySelectorAll('.plot')]"
        most = page.evaluate(f"{drawn}.map(p => Math.max(...p.data.map(t => t.y.length)))")
        assert max(most) <= MOST_POINTS
        assert sum(page.evaluate("shifts")) < 0.02
        opened.check()


def test_a_lost_stream_is_taken_up_again(look: Look) -> None:
    lost: list[str] = []

    def lose(route: Route) -> None:
        if len(lost) < 1:
            lost.append(route.request.url)
            route.fulfill(content_type="text/event-stream", body=": still here\n\n")
        else:
            route.continue_()

    with look() as opened:
        opened.page.route("**/stream", lose)
        opened.page.goto(f"{opened.site.origin}/#/experiments/empty")
        expect(opened.page.locator(".live")).to_contain_text("reconnecting")
        expect(opened.page.locator(".live")).to_have_text("live")
        assert len(lost) == 1


def test_without_plotly_the_page_says_so(look: Look, site: Site) -> None:
    html = httpx.get(site.origin).text.replace(str(plotly_path()), "")
    with look() as opened:
        opened.page.route(
            f"{site.origin}/", lambda route: route.fulfill(body=html, content_type="text/html")
        )
        opened.page.goto(f"{site.origin}/#/experiments/learning")
        expect(opened.page.locator(".estimates .plot")).to_contain_text("pip install plotly")
        expect(opened.page.locator(".board tbody tr")).to_have_count(3)


# Who is there


def test_the_keyboard_signs_in_opens_and_pauses(look: Look, site: Site) -> None:
    slug = site.create("By keyboard")
    with look(None) as opened:
        page = opened.page
        page.goto(site.origin)
        expect(page.get_by_label("key")).to_be_visible()
        tab_to(page, "key")
        page.keyboard.type(ADMIN_KEY)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
        tab_to(page, "By keyboard")
        page.keyboard.press("Enter")
        expect(page.locator(".live")).to_have_text("live")
        tab_to(page, "Pause")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        assert site.results(slug)["status"] == "paused"
        kept = page.evaluate(
            "[Object.values(sessionStorage), localStorage.length, document.cookie]"
        )
        assert kept == [[ADMIN_KEY], 0, ""]
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("key")).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0
        opened.check()


def tab_to(page: Page, name: str) -> None:
    """Press Tab until something of this name has the focus."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id || document.activeElement.textContent") == name:
            return
    raise AssertionError(f"Tab does not reach {name}")


def test_a_wrong_key_is_told_so(look: Look, site: Site) -> None:
    with look(None) as opened:
        opened.page.goto(site.origin)
        for text, said in (("ak_wrong", "unknown"), ("ключ", "begins with ak_")):
            opened.page.get_by_label("key").fill(text)
            opened.page.keyboard.press("Enter")
            expect(opened.page.get_by_role("alert")).to_contain_text(said)
        assert opened.page.evaluate("sessionStorage.length") == 0


def test_readers_see_everything_and_can_do_nothing(look: Look) -> None:
    with look(KEYS["reader"]) as opened:
        opened.open("learning")
        names = opened.page.get_by_role("button").all_inner_texts()
        assert set(names) <= {"Sign out", "Copy"}
        opened.page.goto(f"{opened.site.origin}/#/new")
        expect(opened.page.get_by_role("heading", name="Experiments")).to_be_visible()
        expect(opened.page.get_by_text("New experiment")).to_have_count(0)
        opened.check()


def test_names_are_text_everywhere(look: Look, site: Site) -> None:
    with look(height=2400) as opened:
        page = opened.page
        opened.open("script-alert-1-script")
        expect(page.get_by_role("heading", level=1)).to_have_text("<script>alert(1)</script>")
        keys = {arm["key"] for arm in site.results("script-alert-1-script")["arms"]}
        assert set(page.locator(".board .name").all_inner_texts()) == keys
        assert set(page.locator(".legend li").all_inner_texts()) == keys
        page.locator(".chances .draglayer .nsewdrag").hover(force=True)
        hover = page.locator(".chances .hoverlayer")
        for key in keys:
            expect(hover).to_contain_text(key)
        page.get_by_role("button", name="Ship the winner…").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert page.locator("main img, dialog img, main b, dialog b").count() == 0
        opened.check()


# What is done


def test_an_admin_retires_ships_stops_and_deletes(look: Look, site: Site) -> None:
    slug = site.create("Actions")
    site.visit(slug, 60)
    with look() as opened:
        page = opened.page

        def agree(action: str, answer: str) -> None:
            page.get_by_role("button", name=action).click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_role("button", name="Cancel").click()
            expect(dialog).to_have_count(0)
            page.get_by_role("button", name=action).click()
            dialog.get_by_role("button", name=answer).click()
            expect(page.locator("#notice")).not_to_be_empty()
            expect(dialog).to_have_count(0)

        opened.open(slug)
        agree("Retire c", "Retire it")
        expect(page.locator(".board .retired .name")).to_have_text("c")
        agree("Ship the winner…", "Ship it")
        expect(page.locator(".head .status")).to_have_text("shipped")
        expect(page.get_by_role("button", name="Undo shipping")).to_be_focused()
        for name in ("Pause", "Retire a", "Retire b"):
            expect(page.get_by_role("button", name=name)).to_be_disabled()
        agree("Stop…", "Stop it")
        expect(page.locator(".head .status")).to_have_text("stopped")
        expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        with page.expect_download() as saved:
            page.get_by_role("button", name="Export CSV").click()
        assert saved.value.suggested_filename == f"{slug}.csv"
        table = site.ask("GET", f"/v1/experiments/{slug}/results.csv")
        assert Path(saved.value.path()).read_bytes() == table.content
        agree("Delete…", "Delete it")
        expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
        listed = site.ask("GET", "/v1/experiments").json()["experiments"]
        assert slug not in {each["id"] for each in listed}
        opened.check()


def test_a_span_is_rolled_back_or_refused_by_field(look: Look, site: Site) -> None:
    before = site.results("certified")["reports"]
    with look() as opened:
        page = opened.page
        opened.open("certified")
        page.get_by_role("button", name="Roll back…").click()
        dialog = page.get_by_role("dialog")
        now = page.evaluate("Date.now() - new Date().getTimezoneOffset() * 60000") / 1000
        moment = datetime.fromtimestamp(now // 60 * 60)

        def minute(past: int) -> str:
            return f"{moment - timedelta(minutes=past):%Y-%m-%dT%H:%M}"

        dialog.get_by_label("From").fill(minute(10))
        dialog.get_by_label("Up to").fill(minute(20))
        dialog.get_by_role("button", name="Remove").click()
        expect(dialog.locator("#span-to-error")).to_contain_text("end after it begins")
        dialog.get_by_label("Up to").fill(minute(3))
        dialog.get_by_role("button", name="Remove").click()
        expect(dialog).to_have_count(0)
        expect(page.locator("#notice")).to_contain_text("Removed")
        after = site.results("certified")["reports"]
        assert after < before
        expect(page.locator(".sentence")).to_contain_text(f"{after:,} reports")


def test_an_experiment_is_created_and_errors_stand_at_their_fields(look: Look, site: Site) -> None:
    with look() as opened:
        page = opened.page
        page.goto(f"{site.origin}/#/new")

        def refused(field: str, message: str) -> None:
            page.get_by_role("button", name="Create").click()
            error = page.locator(f"#field-{field}-error")
            expect(error).to_contain_text(message)
            expect(page.locator(f"#field-{field}")).to_be_focused()

        refused("name", "length")
        page.get_by_label("Name").fill("Made here")
        page.get_by_label("ε, privacy per report").first.fill("9")
        expect(page.locator(".meaning")).to_contain_text("Hardly any protection")
        refused("epsilon", "at most 8")
        page.get_by_label("ε, privacy per report").first.fill("2")
        expect(page.locator(".meaning")).to_contain_text("88.1")
        page.get_by_role("button", name="Add an arm").click()
        page.get_by_label("Key").nth(2).fill("kind")
        refused("arm-2-key", "two arms")
        page.get_by_label("Key").nth(2).fill("bold")
        page.get_by_label("Payload").nth(2).fill("{text}")
        refused("arm-2-payload", "not JSON")
        page.get_by_label("Payload").nth(2).fill('{"text": "Now"}')
        page.get_by_label("Window", exact=True).fill("31")
        page.get_by_label("Window, unit").select_option("days")
        refused("window", "2592000")
        page.get_by_label("Window", exact=True).fill("1")
        page.get_by_role("button", name="Create").click()
        expect(page.locator(".waiting")).to_contain_text('decide("made-here")')
        made = site.ask("GET", "/v1/experiments/made-here").json()
        assert [arm["key"] for arm in made["arms"]] == ["plain", "kind", "bold"]
        assert made["arms"][2]["payload"] == {"text": "Now"}
        assert (made["window"], made["spread"]) == (86400, 300)
        assert made["arms"][0]["epsilon"] == pytest.approx(2)


# The certificate


def test_three_arms_are_driven_to_their_certificate_shipped_and_undone(
    look: Look, site: Site
) -> None:
    rates = {"low": 0.1, "middle": 0.4, "high": 0.8}
    slug = site.create("To know", *rates, epsilon=4, goal="know")
    crowd = Crowd(site, slug, rates)
    for key in rates:  # so few that no arm can be certified, whatever they like
        crowd.visit(6, available=[key])
    with look() as opened:
        page = opened.page
        ship = page.get_by_role("button", name="Ship the winner…")
        bar = page.get_by_role("progressbar", name="Evidence for a certificate")
        headline, dialog = page.locator(".sentence"), page.get_by_role("dialog")
        opened.open(slug)
        expect(page.locator(".about")).to_contain_text("goal: know")
        early = site.results(slug)
        assert early["certificate"]["state"] == "open"
        leads = f"No certificate yet: {early['certificate']['leader']} leads with "
        expect(headline).to_contain_text(leads)
        expect(bar).to_have_attribute(
            "aria-valuenow", str(int(100 * early["certificate"]["progress"]))
        )
        assert evidence_in_table(page) == evidence_in_words(early)
        assert "primary" not in (ship.get_attribute("class") or "")
        ship.click()
        expect(dialog).to_contain_text("This is not certified: ")
        expect(dialog).to_contain_text("another arm may turn out to be best")
        dialog.get_by_role("button", name="Cancel").click()
        assert "likely" not in headline.inner_text()

        late = crowd.until_certified()
        assert late["certificate"]["winner"] == "high"
        expect(headline).to_have_text(late["sentence"])
        expect(headline).to_contain_text("high is best (wrong with probability at most 5 %")
        expect(page.locator(".experiment.is-settled")).to_be_visible()
        expect(bar).to_have_attribute("aria-valuenow", "100")
        expect(page.locator(".board .certified .name")).to_have_text("high")
        assert evidence_in_table(page) == evidence_in_words(late)
        assert "primary" in str(ship.get_attribute("class"))
        ship.click()
        expect(dialog).to_contain_text("high is best (wrong with probability at most 5 %")
        assert "not certified" not in dialog.inner_text()
        dialog.get_by_role("button", name="Ship it").click()

        expect(headline).to_contain_text("Shipped: everybody sees high.")
        expect(page.locator(".certificate")).to_contain_text("this can be undone until")
        expect(ship).to_be_hidden()
        path = f"/v1/experiments/{slug}/decisions"
        shown = site.ask("POST", path, json={"count": 20}).json()["decisions"]
        assert {made["arm"] for made in shown} == {"high"}
        page.get_by_role("button", name="Undo shipping").click()
        expect(page.locator(".head .status")).to_have_text("running")
        expect(ship).to_be_focused()
        expect(page.locator(".certificate")).not_to_contain_text("Shipped")
        assert site.results(slug)["shipped"] is None
        opened.check()


def evidence_in_table(page: Page) -> dict[str, str]:
    """Return what the table says of the evidence, by arm."""
    rows = page.locator(".board tbody tr").all()
    return {
        row.locator(".name").inner_text(): row.locator("td.evidence").inner_text() for row in rows
    }


def evidence_in_words(results: Any) -> dict[str, str]:
    """Return the same from results."""
    certificate = results["certificate"]
    words = {certificate["leader"]: "certified" if certificate["winner"] else "leads"}
    for rival in certificate["rivals"]:
        share = min(rival["evidence"] / rival["needed"], 1)
        words[rival["key"]] = f"{100 * share:.0f}\u202f%"
        if 0 < share < 0.005 or 0.995 <= share < 1:
            words[rival["key"]] = "<\u202f1\u202f%" if share < 0.5 else ">\u202f99\u202f%"
    return words


def test_the_headline_says_what_a_certificate_still_needs(look: Look, site: Site) -> None:
    rivals = site.results("learning")["certificate"]["rivals"]
    closest = min(rivals, key=lambda rival: float(rival["evidence"] / rival["needed"]))
    share = 100 * closest["evidence"] / closest["needed"]
    assert 1 < share < 99
    needs = rf"leads with {share:.0f} % of the evidence; needs about [\d,]+ more reports, \d+ hours"
    with look() as opened:
        opened.open("learning")
        expect(opened.page.locator(".sentence")).to_contain_text(re.compile(needs))
        said = f"needs; the closest rival is {closest['key']}."
        expect(opened.page.locator(".certificate")).to_contain_text(said)
        belief = opened.page.get_by_role("columnheader", name="P(best), a belief")
        expect(belief).to_be_visible()
        opened.check()


def test_a_stopped_test_of_equal_arms_is_good_enough_within_a_tolerance(
    look: Look, site: Site
) -> None:
    rates = {"one": 0.5, "other": 0.5}
    slug = site.create("Equal", *rates, epsilon=4, goal="know", tolerance=0.2)
    winner = Crowd(site, slug, rates).until_certified()["certificate"]["winner"]
    site.ask("PATCH", f"/v1/experiments/{slug}", json={"status": "stopped"})
    with look() as opened:
        page = opened.page
        opened.open(slug)
        said = f"Stopped. No other is better than {winner} by more than 0.2 "
        expect(page.locator(".sentence")).to_contain_text(said)
        expect(page.locator(".experiment.is-settled")).to_be_visible()
        expect(page.get_by_role("button", name="Ship the winner…")).to_be_disabled()
        page.get_by_text("What a certificate says").click()
        told = page.locator(".certificate details")
        expect(told).to_contain_text("by more than 20 percentage points")
        expect(told).to_contain_text("Let it run for whole weeks: weekdays differ.")
        opened.check()


def test_shipping_can_be_undone_until_its_time_is_over(look: Look, site: Site) -> None:
    until = datetime.fromisoformat(site.results("shipped")["shipped"]["undo_until"])
    with look() as opened:
        page = opened.page
        page.clock.install(time=until - timedelta(minutes=10))
        opened.open("shipped")
        undo = page.get_by_role("button", name="Undo shipping")
        expect(undo).to_be_visible()
        expect(page.locator(".certificate")).to_contain_text("this can be undone until")
        page.route("**/stream", lambda route: route.abort())  # no results come any more
        page.clock.fast_forward("11:00")
        expect(undo).to_be_hidden()
        expect(page.locator(".certificate")).to_contain_text("Shipped on")
        expect(page.locator(".certificate")).not_to_contain_text("can be undone")
        expect(page.get_by_role("button", name="Ship the winner…")).to_be_hidden()


def test_where_nobody_can_say_which_arm_is_best_the_reason_is_shown(look: Look, site: Site) -> None:
    reason = site.results("alarmed")["certificate"]["reason"]
    with look(KEYS["reader"]) as opened:
        opened.open("alarmed")
        expect(opened.page.locator(".certificate")).to_contain_text(f"Cannot say: {reason}.")
        expect(opened.page.get_by_role("progressbar")).to_have_count(0)
        opened.check()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_form_is_readable(look: Look, site: Site, width: int, dark: bool) -> None:
    with look(width=width, dark=dark) as opened:
        page = opened.page
        page.goto(f"{site.origin}/#/new")
        page.get_by_text("Advanced").click()
        page.get_by_role("radio", name="In between").check()
        for policy in ("", "TopTwo-CF"):  # by which the goals are disabled
            page.get_by_label("Policy").select_option(policy)
            facts = page.evaluate(FACTS)
            assert max(facts["scroll_width"], facts["inner_width"]) <= width
            assert facts["contrast"] >= READABLE
        assert opened.faults() == []
        shots = site.folder / "shots"
        name = f"form-{width}-{'dark' if dark else 'light'}.png"
        page.screenshot(path=shots / name, full_page=True)
        opened.check()


def test_the_form_sends_the_goal_and_the_certificate_that_were_chosen(
    look: Look, site: Site
) -> None:
    with look() as opened:
        page = opened.page

        def created() -> Any:
            with page.expect_request("**/v1/experiments") as sent:
                page.get_by_role("button", name="Create").click()
            return sent.value.post_data_json

        def fill(label: str, text: str) -> None:
            page.get_by_label(label).fill(text)

        page.goto(f"{site.origin}/#/new")
        fill("Name", "Usual")
        body = created()
        assert (body["goal"], body["delta"]) == ("earn", 0.05)
        assert body.keys().isdisjoint({"policy", "expect", "tolerance", "then"})
        expect(page.locator('[data-id="usual"]')).to_be_visible()

        page.goto(f"{site.origin}/#/new")
        fill("Name", "Chosen")
        page.get_by_role("radio", name="In between").check()
        page.get_by_label("Decisions that serve to know").fill("0.3")
        fill("Error probability", "60")
        fill("Tolerance", "0.5")
        fill("Expected rate", "5")
        page.get_by_label("Ship by itself at the certificate").check()
        page.get_by_role("button", name="Create").click()
        error = page.locator("#field-expect-difference-error")
        expect(error).to_contain_text("or neither")
        fill("Expected difference", "50")
        created()
        expect(error).to_contain_text("too large")
        fill("Expected difference", "1.1")
        created()
        expect(page.locator("#field-delta-error")).to_contain_text("at most 0.5")
        expect(page.locator("#field-delta")).to_be_focused()
        fill("Error probability", "1")
        body = created()
        assert body["goal"] == 0.3
        assert "policy" not in body
        expect(page.locator('[data-id="chosen"]')).to_be_visible()
        made = site.ask("GET", "/v1/experiments/chosen").json()
        asked = {name: made[name] for name in ("goal", "delta", "tolerance", "expect", "then")}
        assert asked == {
            "goal": 0.3,
            "delta": 0.01,
            "tolerance": 0.005,
            "expect": {"rate": 0.05, "difference": 0.011},
            "then": "ship",
        }
        expect(page.locator(".about")).to_contain_text("ships by itself at the certificate")

        page.goto(f"{site.origin}/#/new")
        fill("Name", "By policy")
        page.get_by_text("Advanced").click()
        page.get_by_label("Policy").select_option("IMED-CF")
        expect(page.get_by_role("radio", name="Know")).to_be_disabled()
        body = created()
        assert body["policy"] == "IMED-CF"
        assert "goal" not in body
        expect(page.locator('[data-id="by-policy"]')).to_be_visible()
