"""The dashboard in Chromium, against a server in a process of its own."""

import gzip
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
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect
from plotly.offline import get_plotlyjs

from browser import FACTS, READABLE
from filled import fill
from process import ADMIN_KEY, Server
from service import KEYS
from whitelie.service.pages import POLICY, plotly_path

STATES = ("empty", "learning", "converged", "alarmed")
CHARTS = ("estimates", "shares", "chances")
MOST_POINTS = 240
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
        answer = httpx.request(method, self.origin + path, headers=headers, timeout=30, **given)
        assert answer.is_success, answer.text
        return answer

    def results(self, slug: str) -> Any:
        return self.ask("GET", f"/v1/experiments/{slug}/results").json()

    def create(self, name: str, *keys: str) -> str:
        """Create an experiment that waits for nothing, and return its id."""
        arms = [{"key": key} for key in keys or ("a", "b", "c")]
        body = {"name": name, "arms": arms, "epsilon": 1, "window": 0, "spread": 60}
        return str(self.ask("POST", "/v1/experiments", json=body).json()["id"])

    def visit(self, slug: str, count: int) -> None:
        """Let visitors come and report; every third bit is 1."""
        path = f"/v1/experiments/{slug}/decisions"
        decisions = self.ask("POST", path, json={"count": count}).json()["decisions"]
        items = [
            {"token": made["token"], "bit": int(n % 3 == 0)} for n, made in enumerate(decisions)
        ]
        self.ask("POST", "/v1/feedback", json={"items": items})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("dashboard")
    fill(folder / "whitelie.db")
    with Server(folder / "whitelie.db", folder / "log") as server, ThreadPoolExecutor() as threads:
        threads.submit(server.ready).result()  # Playwright has an event loop in this thread
        yield Site(server.port, folder)


@dataclass
class Sight:
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

    def faults(self) -> list[str]:
        """Return what axe finds serious or critical."""
        found = Axe().run(self.page).response["violations"]
        bad = [each for each in found if each["impact"] in ("serious", "critical")]
        return [f"{each['id']}: {each['nodes'][0]['html']}" for each in bad]


Look = Callable[..., Any]


@pytest.fixture
def look(chromium: Browser, site: Site) -> Look:
    @contextmanager
    def looking(
        key: str | None = ADMIN_KEY, width: int = 1280, *, dark: bool = False, height: int = 900
    ) -> Iterator[Sight]:
        with chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            permissions=["clipboard-read", "clipboard-write"],
        ) as context:
            if key:
                context.add_init_script(KEEP_KEY.format(key=key))
            page = context.new_page()
            sight = Sight(page, site)
            page.on("request", lambda request: sight.requests.append(request.url))
            page.on("pageerror", lambda error: sight.complaints.append(str(error)))
            page.on(
                "console",
                lambda said: (
                    sight.complaints.append(said.text)
                    if said.type in ("error", "warning")
                    else None
                ),
            )
            page.on("dialog", lambda dialog: sight.complaints.append(dialog.message))
            yield sight

    return looking


# What is served


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
    site.visit(slug, 1)
    last = datetime.fromisoformat(site.results(slug)["last_report"])
    assert last.second == last.microsecond == 0
    assert abs(time.time() - last.timestamp()) < 180


# How it looks


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_state_is_readable(look: Look, site: Site, width: int, dark: bool) -> None:
    shots = site.folder / "shots"
    with look(width=width, dark=dark) as sight:
        for state in STATES:
            sight.open(state)
            facts = sight.page.evaluate(FACTS)
            assert max(facts["scroll_width"], facts["inner_width"]) <= width, state
            assert facts["contrast"] >= READABLE, state
            assert facts["headings"][0] == 1
            assert facts["headings"].count(1) == 1
            assert site.results(state)["sentence"] in facts["text"]
            name = f"{state}-{width}-{'dark' if dark else 'light'}.png"
            sight.page.screenshot(path=shots / name, full_page=True)
        sight.check()
    print(f"screenshots: {shots}")


def test_axe_finds_nothing_serious(look: Look, site: Site) -> None:
    with look() as sight:
        for state in ("empty", "learning"):
            sight.open(state)
            assert sight.faults() == [], state
        for path, there in (("/#/", ".list li .said"), ("/#/new", "form.create")):
            sight.page.goto(site.origin + path)
            expect(sight.page.locator(there).first).to_be_visible()
            assert sight.faults() == [], path
    with look(width=390, dark=True) as sight:
        sight.open("alarmed")
        assert sight.faults() == []
        sight.page.get_by_role("button", name="Stop…").click()
        assert sight.faults() == []
    with look(None, dark=True) as sight:
        sight.page.goto(site.origin)
        expect(sight.page.get_by_label("key")).to_be_visible()
        assert sight.faults() == []


def test_states_say_what_they_must(look: Look, site: Site) -> None:
    with look() as sight:
        page = sight.page
        sight.open("empty")
        snippet = page.locator(".waiting pre")
        expect(snippet).to_contain_text(f'server: "{site.origin}"')
        expect(snippet).to_contain_text('decide("empty")')
        expect(page.locator(".waiting")).to_contain_text("Last report seen: never")
        page.locator(".waiting").get_by_role("button", name="Copy").click()
        expect(page.locator("#notice")).to_have_text("Copied.")
        assert page.evaluate("navigator.clipboard.readText()") == snippet.text_content()
        sight.open("alarmed")
        expect(page.get_by_role("button", name="Ship the winner…")).to_be_disabled()
        for alarm in site.results("alarmed")["alarms"]:
            expect(page.locator(".alarms")).to_contain_text(alarm["message"])
        hashed = site.ask("GET", "/v1/experiments/alarmed/privacy").json()["hash"]
        expect(page.locator(".hash")).to_have_text(hashed)
        expect(page.get_by_text("odds about a click by at most a factor eε = 2.72")).to_be_visible()
        tables = site.ask("GET", "/v1/stored").json()["tables"]
        row = page.get_by_role("row").filter(has=page.get_by_text("keys", exact=True))
        expect(row).to_contain_text(str(tables["keys"]))
        sight.check()


def test_health_says_what_became_of_decisions_and_how_late(look: Look, site: Site) -> None:
    slug = site.create("Became")
    site.visit(slug, 12)
    site.ask("POST", f"/v1/experiments/{slug}/decisions", json={"count": 9})
    with look() as sight:
        sight.open(slug)
        panel = sight.page.locator("#health-panel")
        head = panel.get_by_role("columnheader").all_text_contents()
        assert head == ["Arm", "Answered", "Pending", "Overdue", "Missing", "Redeemed"]
        for place, arm in enumerate(site.results(slug)["arms"]):
            cells = panel.locator("tbody tr").nth(place).locator("td").all_text_contents()
            columns = ("answered", "pending", "overdue", "missing")
            assert cells[:4] == [f"{arm[column]:,}" for column in columns]
        expect(sight.page.get_by_text("of those made")).to_be_hidden()
        sight.open("learning")
        late = re.compile(r"\d\d\u202f% of those made 1 hour ago")
        expect(sight.page.locator("#health-panel")).to_contain_text(late)
        sight.check()
    with look(KEYS["reader"]) as sight:
        sight.open("learning")
        panel = sight.page.locator("#health-panel")
        expect(panel.get_by_text("of those made")).to_be_hidden()
        expect(panel.get_by_text("Missing reports")).to_be_hidden()
        expect(panel).to_contain_text("Pending: not answered, as far as readers see.")
        for arm in range(panel.locator("tbody tr").count()):
            cells = panel.locator("tbody tr").nth(arm).locator("td").all_text_contents()
            assert all(re.fullmatch(r"[\d,]+", cell) for cell in cells[:2])
            assert cells[2:] == ["–", "–", "–"]
        rows = sight.page.locator("table", has_text="Rows in this server").locator("tbody tr")
        expect(rows).to_have_count(4)
        expect(rows.filter(has_text="reports shown at once")).to_have_count(1)
        sight.check()


@pytest.mark.parametrize("sending", ["next-visit", "when-due"])
def test_an_experiment_is_created_with_its_sending_rule(
    look: Look, site: Site, sending: str
) -> None:
    with look() as sight:
        page = sight.page
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
        sight.check()


def test_the_table_has_noisy_and_corrected_numbers(look: Look, site: Site) -> None:
    best = max(site.results("converged")["arms"], key=lambda arm: arm["probability_best"])
    with look() as sight:
        sight.open("converged")
        row = sight.page.locator(".board tbody tr").first
        expect(row.locator(".name")).to_have_text(best["key"])
        for column in ("raw_rate", "estimate", "traffic_share"):
            expect(row).to_contain_text(f"{100 * best[column]:.1f}\u202f%")
        bar = row.get_by_role("img")
        expect(bar).to_have_attribute("aria-label", re.compile(f"^{100 * best['lower']:.1f}.+ to"))


# Time and life


def test_ten_thousand_minutes_are_drawn_with_few_points(look: Look, site: Site) -> None:
    with look(height=2400) as sight:
        page = sight.page
        with page.expect_response("**/history?*") as answered:
            sight.open("long")
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
        sight.check()


def test_live_updates_move_points_and_nothing_else(look: Look, site: Site) -> None:
    with look(height=2400) as sight:
        page = sight.page
        sight.open("long")
        page.wait_for_timeout(1200)
        page.evaluate(WATCH_PLOTS)
        page.evaluate(WATCH_SHIFTS)
        start = time.monotonic()
        for _ in range(3):
            site.visit("long", 30)
            page.wait_for_timeout(1000)
        reports = site.results("long")["reports"]
        expect(page.locator(".sentence")).to_contain_text(f"{reports:,} reports")
        seconds = time.monotonic() - start
        assert 1 <= page.evaluate("drawn") <= len(CHARTS) * (seconds + 1)
        found = "plots.every(svg => svg.isConnected) && [...document.querySelectorAll('.plot')]"
        most = page.evaluate(f"{found}.map(p => Math.max(...p.data.map(t => t.y.length)))")
        assert max(most) <= MOST_POINTS
        assert sum(page.evaluate("shifts")) < 0.02
        sight.check()


def test_a_lost_stream_is_taken_up_again(look: Look) -> None:
    lost: list[str] = []

    def lose(route: Route) -> None:
        if len(lost) < 1:
            lost.append(route.request.url)
            route.fulfill(content_type="text/event-stream", body=": still here\n\n")
        else:
            route.continue_()

    with look() as sight:
        sight.page.route("**/stream", lose)
        sight.page.goto(f"{sight.site.origin}/#/experiments/empty")
        expect(sight.page.locator(".live")).to_contain_text("reconnecting")
        expect(sight.page.locator(".live")).to_have_text("live")
        assert len(lost) == 1


def test_without_plotly_the_page_says_so(look: Look, site: Site) -> None:
    html = httpx.get(site.origin).text.replace(str(plotly_path()), "")
    with look() as sight:
        sight.page.route(
            f"{site.origin}/", lambda route: route.fulfill(body=html, content_type="text/html")
        )
        sight.page.goto(f"{site.origin}/#/experiments/learning")
        expect(sight.page.locator(".estimates .plot")).to_contain_text("pip install plotly")
        expect(sight.page.locator(".board tbody tr")).to_have_count(3)


# Who is there


def test_the_keyboard_signs_in_opens_and_pauses(look: Look, site: Site) -> None:
    slug = site.create("By keyboard")
    with look(None) as sight:
        page = sight.page
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
        sight.check()


def tab_to(page: Page, name: str) -> None:
    """Press Tab until something of this name has the focus."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id || document.activeElement.textContent") == name:
            return
    raise AssertionError(f"Tab does not reach {name}")


def test_a_wrong_key_is_told_so(look: Look, site: Site) -> None:
    with look(None) as sight:
        sight.page.goto(site.origin)
        for text, said in (("ak_wrong", "not known"), ("ключ", "begins with ak_")):
            sight.page.get_by_label("key").fill(text)
            sight.page.keyboard.press("Enter")
            expect(sight.page.get_by_role("alert")).to_contain_text(said)
        assert sight.page.evaluate("sessionStorage.length") == 0


def test_readers_see_everything_and_can_do_nothing(look: Look) -> None:
    with look(KEYS["reader"]) as sight:
        sight.open("learning")
        names = sight.page.get_by_role("button").all_inner_texts()
        assert set(names) <= {"Sign out", "Copy"}
        sight.page.goto(f"{sight.site.origin}/#/new")
        expect(sight.page.get_by_role("heading", name="Experiments")).to_be_visible()
        expect(sight.page.get_by_text("New experiment")).to_have_count(0)
        sight.check()


def test_names_are_text_everywhere(look: Look, site: Site) -> None:
    with look(height=2400) as sight:
        page = sight.page
        sight.open("script-alert-1-script")
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
        sight.check()


# What is done


def test_an_admin_retires_ships_stops_and_deletes(look: Look, site: Site) -> None:
    slug = site.create("Actions")
    site.visit(slug, 60)
    with look() as sight:
        page = sight.page

        def agree(action: str, answer: str) -> None:
            page.get_by_role("button", name=action).click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_role("button", name="Cancel").click()
            expect(dialog).to_have_count(0)
            page.get_by_role("button", name=action).click()
            dialog.get_by_role("button", name=answer).click()
            expect(page.locator("#notice")).not_to_be_empty()
            expect(dialog).to_have_count(0)

        sight.open(slug)
        agree("Retire c", "Retire it")
        expect(page.locator(".board .retired .name")).to_have_text("c")
        agree("Ship the winner…", "Ship it")
        expect(page.locator(".board .retired")).to_have_count(2)
        assert sum(arm["retired"] for arm in site.results(slug)["arms"]) == 2
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
        sight.check()


def test_a_span_is_rolled_back_or_refused_by_field(look: Look, site: Site) -> None:
    before = site.results("converged")["reports"]
    with look() as sight:
        page = sight.page
        sight.open("converged")
        page.get_by_role("button", name="Roll back…").click()
        dialog = page.get_by_role("dialog")
        now = page.evaluate("Date.now() - new Date().getTimezoneOffset() * 60000") / 1000
        moment = datetime.fromtimestamp(now // 60 * 60)

        def minute(past: int) -> str:
            return f"{moment - timedelta(minutes=past):%Y-%m-%dT%H:%M}"

        dialog.get_by_label("From").fill(minute(10))
        dialog.get_by_label("Up to").fill(minute(20))
        dialog.get_by_role("button", name="Remove").click()
        expect(dialog.locator("#span-to-error")).to_contain_text("ends after it begins")
        dialog.get_by_label("Up to").fill(minute(3))
        dialog.get_by_role("button", name="Remove").click()
        expect(dialog).to_have_count(0)
        expect(page.locator("#notice")).to_contain_text("Removed")
        after = site.results("converged")["reports"]
        assert after < before
        expect(page.locator(".sentence")).to_contain_text(f"{after:,} reports")


def test_an_experiment_is_created_and_errors_stand_at_their_fields(look: Look, site: Site) -> None:
    with look() as sight:
        page = sight.page
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
        refused("arm-2-payload", "no JSON")
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
