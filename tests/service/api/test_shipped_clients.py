"""A shipped arm at deployed clients: they show it, report nothing, and pay nothing."""

import json
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.paths import ROOT
from helpers.simulated_devices import DAY, KEY, Operator, Recorder, operating
from whitelie.client import Answer, Choice, Client, Memory

ONE = "/v1/experiments/button"
OPTIONS: list[dict[str, Any]] = [
    {},
    {"min_spread": 0},
    {"min_spread": 0, "sending": "when-due"},
    {"min_spread": 0, "immediate": True},
]
SCRIPT = """
const [module, body, changes] = JSON.parse(process.argv[1]);
const { Whitelie } = await import(module);
let now = 1.8e12;
const sent = [], items = new Map();
const store = {
  getItem: (name) => items.get(name) ?? null,
  setItem: (name, text) => void items.set(name, text),
  removeItem: (name) => void items.delete(name),
  keys: () => items.keys(),
};
const fetch = async (url, { body: asked }) => {
  sent.push([new URL(url).pathname, JSON.parse(asked)]);
  return { status: 200, text: async () => body, headers: new Headers() };
};
const timers = [];
const testing = { now: () => now, fetch, setTimeout: (job) => timers.push(job), clearTimeout() {} };
const options = { server: "http://service.example", key: "pk_x", store, testing, ...changes };
const client = Whitelie(options);
const choice = await client.decide("button", { fallback: { arm: "fallback" } });
choice.reward(1);
const charged = [...items].filter(([name]) => name.startsWith("whitelie.charge."));
for (const later of [0, 1, 999, 1000, 60_000, 86_400_000]) {
  now = 1.8e12 + later;
  await client.flush();
  await Whitelie({ ...options, store: { ...store } }).flush(); // as if the page were loaded anew
}
const left = [...items.keys()].filter((name) => name.startsWith("whitelie.report."));
const epsilons = charged.map(([, text]) => JSON.parse(text).epsilon);
console.log(JSON.stringify({ arm: choice.arm, payload: choice.payload, sent, left, epsilons }));
process.exit(0);
"""


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with operating(tmp_path) as operator:
        operator.create()
        yield operator


def ship(operator: Operator) -> None:
    assert operator.ask("POST", f"{ONE}/ship", {"arm": "green"})["status"] == "shipped"


def visited(operator: Operator, options: dict[str, Any]) -> tuple[Choice, list[Any], Memory]:
    """Let a device decide, click, and come back for days; return what it showed and sent."""
    clock, storage = operator.clock, Memory()
    recorder = Recorder(operator.server, clock)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the spread, and about `immediate`
        client = Client(recorder, KEY, storage=storage, clock=clock, **options)
        choice = client.decide("button", fallback=Choice("fallback"))
        choice.reward(1)
        start = clock.now
        for later in (0, 0.001, 1, 2, 61, 3600, 2 * DAY):
            clock.now = start + later
            client.flush()
            Client(recorder, KEY, storage=storage, clock=clock, **options).flush()
    return choice, [one for one in recorder.requests if one.is_report], storage


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.promise("Shipping")
def test_the_python_client_shows_the_winner_and_sends_nothing(
    operator: Operator, options: dict[str, Any]
) -> None:
    ship(operator)
    choice, reports, storage = visited(operator, options)
    assert (choice.arm, choice.payload) == ("green", {"colour": "#0a0"})
    assert reports == []
    names = list(storage.keys())
    assert not [name for name in names if name.startswith("whitelie.report.")]
    charges = [storage.get(name) for name in names if name.startswith("whitelie.charge.")]
    assert {json.loads(text or "")["epsilon"] for text in charges} <= {0}
    assert operator.counts("button")[:2] == (0, 0)


@pytest.mark.parametrize("options", OPTIONS[1:])
def test_without_shipping_the_same_visit_is_reported(
    operator: Operator, options: dict[str, Any]
) -> None:
    _, reports, _ = visited(operator, options)
    assert len(reports) == 1
    assert operator.counts("button")[:2] == (1, 1)


def test_a_report_on_a_shipped_decision_is_thrown_away(operator: Operator) -> None:
    """Should some client send one: 422 settles it, and nothing is counted."""
    ship(operator)
    headers = {"Authorization": f"Bearer {KEY}"}
    answer = operator.server.post(f"{ONE}/decisions", b"{}", headers, 60)
    token = json.loads(answer.body)["decisions"][0]["token"]
    body = json.dumps({"token": token, "bit": 1}).encode()
    refused = operator.server.post("/v1/feedback", body, {}, 60)
    assert (refused.status, json.loads(refused.body)["error"]["code"]) == (422, "invalid_token")
    assert operator.counts("button")[:2] == (0, 0)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("is_shipped", [True, False])
def test_the_browsers_client_shows_the_winner_and_sends_nothing(
    operator: Operator, options: dict[str, Any], is_shipped: bool
) -> None:
    """The service's own answer, under Node; the same visit to a running experiment is reported."""
    if (node := shutil.which("node")) is None:
        pytest.skip("Node is not installed: apt-get install nodejs, version 20 or later")
    if is_shipped:
        ship(operator)
    answer: Answer = operator.server.post(
        f"{ONE}/decisions", b"{}", {"Authorization": f"Bearer {KEY}"}, 60
    )
    words = {"min_spread": "minSpread"}
    changes = {words.get(name, name): value for name, value in options.items()}
    module = (ROOT / "clients" / "js" / "whitelie.js").as_uri()
    orders = json.dumps([module, answer.body.decode(), changes])
    done = subprocess.run(
        [node, "--input-type=module", "-e", SCRIPT, orders],
        capture_output=True,
        timeout=60,
        check=True,
    )
    told = json.loads(done.stdout)
    reports = [body for path, body in told["sent"] if path == "/v1/feedback"]
    if is_shipped:
        assert (told["arm"], told["payload"]) == ("green", {"colour": "#0a0"})
        assert (reports, told["left"]) == ([], [])
        assert set(told["epsilons"]) <= {0}
    else:
        assert len(reports) == 1
