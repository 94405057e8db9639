"""A specification: every feature of the format, and every refusal before any work."""

import re
from pathlib import Path
from typing import Any

import pytest

import whitelie
from policy.test_policy import LABELS
from whitelie import (
    IDENTITY,
    KLUCB,
    TS,
    UCB,
    UCB1,
    Certificate,
    Channel,
    DPUCBInt,
    Expect,
    InvalidInput,
    Mechanism,
    Monotone,
    Problem,
    RandomizedResponse,
    menu,
)
from whitelie.policy import Policy
from whitelie.simulation.specification import (
    EXAMPLE,
    Specification,
    Sweep,
    load_specification,
    parse_specification,
)

LINES = {
    "horizon": "1_000",
    "replicates": "20",
    "seed": "7",
    "means": "{ red = 0.9, blue = 0.6 }",
    "channel": "{ epsilon = 1 }",
    "policies": '["kl-UCB-CF", "TS-CF"]',
}
EPSILON_1 = RandomizedResponse.from_epsilon(1)


def toml(after: str = "", **changes: str | None) -> str:
    """A specification with some lines changed, or left out if None; `after` follows it."""
    lines = {key: value for key, value in (LINES | changes).items() if value is not None}
    return "\n".join([*(f"{key} = {value}" for key, value in lines.items()), after])


def parse(after: str = "", **changes: str | None) -> Specification:
    return parse_specification(toml(after, **changes))


def refusal(after: str = "", **changes: str | None) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        parse(after, **changes)
    return caught.value


def test_a_plain_specification() -> None:
    assert parse() == Specification(
        problems=(Problem({"red": 0.9, "blue": 0.6}, EPSILON_1),),
        policies=({"kl-UCB-CF": KLUCB(), "TS-CF": TS()},),
        horizon=1000,
        replicates=20,
        seed=7,
    )


def test_a_list_of_means_names_the_arms_by_number() -> None:
    assert parse(means="[0.9, 1, 0]").problems == (Problem([0.9, 1, 0], EPSILON_1),)


@pytest.mark.parametrize(
    ("text", "channel"),
    [
        ('"identity"', IDENTITY),
        ("{ epsilon = 0.5 }", RandomizedResponse.from_epsilon(0.5)),
        ("{ epsilon = inf }", IDENTITY),
        ("{ p00 = 0.9, p11 = 0.6 }", RandomizedResponse(p00=0.9, p11=0.6)),
        ('{ design = "warner", p = 0.75 }', RandomizedResponse.warner(0.75)),
        (
            '{ design = "forced", truth = 0.5, yes = 0.25 }',
            RandomizedResponse.forced(truth=0.5, yes=0.25),
        ),
        (
            '{ design = "unrelated", truth = 0.5, alpha = 0.1 }',
            RandomizedResponse.unrelated(truth=0.5, alpha=0.1),
        ),
        (
            '{ design = "positive_unlabelled", seen = 0.7 }',
            RandomizedResponse.positive_unlabelled(0.7),
        ),
        (
            "{ points = [[0, 0.1], [0.5, 0.3], [1, 0.9]] }",
            Monotone.from_points([(0, 0.1), (0.5, 0.3), (1, 0.9)]),
        ),
    ],
)
def test_every_kind_of_channel(text: str, channel: Channel) -> None:
    assert parse(channel=text).problems[0].channels == (channel, channel)
    by_name = parse(channel=None, channels=f'{{ blue = {text}, red = "identity" }}')
    assert by_name.problems[0].channels == (IDENTITY, channel)
    in_order = parse(channel=None, means="[0.1, 0.2]", channels=f'["identity", {text}]')
    assert in_order.problems[0].channels == (IDENTITY, channel)


@pytest.mark.parametrize(
    ("text", "name", "policy"),
    [
        ('"kl-UCB-CF"', "kl-UCB-CF", KLUCB()),
        ('"TS"', "TS", TS(feedback="naive")),
        ('"WR(UCB1)"', "WR(UCB1)", UCB1(feedback="wrapped")),
        ('"DP-UCB-INT"', "DP-UCB-INT", DPUCBInt()),
        ('{ rule = "TS" }', "TS-CF", TS()),
        ('{ rule = "UCB1", name = "Auer" }', "Auer", UCB1()),
        ('{ rule = "UCB", feedback = "naive", c = 0 }', "UCB (c=0)", UCB(feedback="naive", c=0)),
        ('{ rule = "KLUCB", domain = "unit" }', "kl-UCB-CF (domain=unit)", KLUCB(domain="unit")),
        (
            '{ rule = "DPUCBInt", epsilon = 0.5, calibrated = true }',
            "DP-UCB-INT (epsilon=0.5, calibrated=True)",
            DPUCBInt(epsilon=0.5, calibrated=True),
        ),
    ],
)
def test_every_way_to_name_a_policy(text: str, name: str, policy: Policy) -> None:
    assert parse(policies=f"[{text}]").policies == ({name: policy},)


def test_policies_as_an_array_of_tables() -> None:
    tables = '[[policies]]\nrule = "UCB"\nc = 0\n[[policies]]\nrule = "TS"'
    assert parse(tables, policies=None).policies == ({"UCB-CF (c=0)": UCB(c=0), "TS-CF": TS()},)


def test_every_label_is_a_policy_with_that_label() -> None:
    for label, policy in LABELS.items():
        if "=" not in label:
            assert parse(policies=f'["{label}"]').policies == ({label: policy},)


def test_every_exported_policy_is_a_rule() -> None:
    exported = {name: getattr(whitelie, name) for name in whitelie.__all__}
    rules = {name for name, value in exported.items() if getattr(value, "titles", None)}
    assert {"KLUCB", "UCB", "UCB1", "TS", "DPUCBInt"} <= rules
    for name in rules:
        (policies,) = parse(policies=f'[{{ rule = "{name}" }}]').policies
        assert [*policies.values()] == [exported[name]()]


def test_checkpoints() -> None:
    assert parse(checkpoints="[1, 10, 1_000]").checkpoints == (1, 10, 1000)


def test_a_sweep_over_epsilon() -> None:
    swept = parse("[sweep]\nepsilon = [0.5, 2]", channel=None)
    means = {"red": 0.9, "blue": 0.6}
    assert swept.sweep == Sweep(parameter="epsilon", values=(0.5, 2))
    assert swept.problems == tuple(
        Problem(means, RandomizedResponse.from_epsilon(epsilon)) for epsilon in (0.5, 2)
    )
    assert swept.policies == parse().policies * 2


def test_a_sweep_over_a_mean() -> None:
    swept = parse('[sweep]\narm = "blue"\nmean = [0.1, 0.95]')
    assert swept.sweep == Sweep(parameter="mean", values=(0.1, 0.95), arm="blue")
    assert [problem.means for problem in swept.problems] == [(0.9, 0.1), (0.9, 0.95)]
    numbered = parse("[sweep]\narm = 1\nmean = [0.1]", means="[0.9, 0.6]")
    assert numbered.problems == (Problem([0.9, 0.1], EPSILON_1),)


def test_a_sweep_over_c_tunes_every_policy_that_has_one_and_does_not_say_its_own() -> None:
    policies = '["kl-UCB-CF", { rule = "UCB", name = "mine" }, { rule = "UCB", c = 1 }, "TS-CF"]'
    swept = parse("[sweep]\nc = [0, 3]", policies=policies)
    assert swept.problems == parse().problems * 2
    assert swept.policies == (
        {"kl-UCB-CF": KLUCB(c=0), "mine": UCB(c=0), "UCB-CF (c=1)": UCB(c=1), "TS-CF": TS()},
        {"kl-UCB-CF": KLUCB(), "mine": UCB(), "UCB-CF (c=1)": UCB(c=1), "TS-CF": TS()},
    )


@pytest.mark.parametrize(
    ("after", "changes", "field", "nearest"),
    [
        ("", {"replicate": "5"}, "replicate", "replicates"),
        ("", {"Horizon": "5"}, "Horizon", "horizon"),
        ("[sweeps]\nc = [1]", {}, "sweeps", "sweep"),
        ("[sweep]\nepsilons = [1]", {}, "sweep.epsilons", "epsilon"),
        ("", {"channel": "{ epsilom = 1 }"}, "channel.epsilom", "epsilon"),
        ("", {"channel": "{ p00 = 0.9, p1 = 0.8 }"}, "channel.p1", "p11"),
        ("", {"channel": "{ epsilon = 1, point = [] }"}, "channel.point", "epsilon"),
        ("", {"channel": '{ design = "forced", truht = 1 }'}, "channel.truht", "truth"),
        ("", {"channel": '{ design = "Warner", p = 1 }'}, "channel.design", "warner"),
        (
            "",
            {"channel": None, "channels": '{ rad = "identity", blue = "identity" }'},
            "channels.rad",
            "red",
        ),
        ("", {"policies": '["TS-CF", "kl-UCB-FC"]'}, "policies[1]", "kl-UCB-CF"),
        ("", {"policies": '[{ rule = "klucb" }]'}, "policies[0].rule", "KLUCB"),
        ("", {"policies": '[{ rule = "UCB", C = 1 }]'}, "policies[0].C", "c"),
        ("", {"policies": '[{ rul = "UCB" }]'}, "policies[0].rul", "rule"),
        ('[sweep]\narm = "blu"\nmean = [1]', {}, "sweep.arm", "blue"),
    ],
)
def test_an_unknown_name_is_refused_with_its_place_and_the_nearest(
    after: str, changes: dict[str, Any], field: str, nearest: str
) -> None:
    refused = refusal(after, **changes)
    assert refused.field == field
    assert f"did you mean {nearest!r}?" in refused.reason


def test_the_message_names_key_table_and_nearest() -> None:
    assert str(refusal(channel="{ epsilom = 1 }")) == (
        "channel.epsilom=1: the table channel has no key 'epsilom'; did you mean 'epsilon'? "
        "Known are epsilon, epsilon0, epsilon1, p00, p11, points, design, menu, zero, one"
    )
    assert str(refusal(replicate="5")).startswith(
        "replicate=5: the specification has no key 'replicate'; did you mean 'replicates'?"
    )


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("horizon", "horizon"),
        ("replicates", "replicates"),
        ("seed", "seed"),
        ("means", "means"),
        ("channel", "channel"),
        ("policies", "policies"),
    ],
)
def test_a_missing_key_is_named(key: str, field: str) -> None:
    changes: dict[str, Any] = {key: None}
    assert refusal(**changes).field == field


@pytest.mark.parametrize(
    ("after", "changes", "field"),
    [
        ("", {"horizon": "1"}, "horizon"),
        ("", {"horizon": str(2**31)}, "horizon"),
        ("", {"horizon": "true"}, "horizon"),
        ("", {"horizon": '"1000"'}, "horizon"),
        ("", {"replicates": "0"}, "replicates"),
        ("", {"replicates": str(2**31)}, "replicates"),
        ("", {"replicates": "-5"}, "replicates"),
        ("", {"seed": "-1"}, "seed"),
        ("", {"seed": str(2**64)}, "seed"),
        ("", {"seed": "1979-05-27"}, "seed"),
        ("", {"checkpoints": "100"}, "checkpoints"),
        ("", {"checkpoints": "[]"}, "checkpoints"),
        ("", {"checkpoints": "[10, 10]"}, "checkpoints"),
        ("", {"checkpoints": "[10, 0]"}, "checkpoints[1]"),
        ("", {"checkpoints": "[10, 1001]"}, "checkpoints[1]"),
        ("", {"means": "0.9"}, "means"),
        ("", {"means": "[]"}, "means"),
        ("", {"means": "{}"}, "means"),
        ("", {"means": "[0.9, 1.2]"}, "means[1]"),
        ("", {"means": '{ "a b" = nan }'}, "means.'a b'"),
        ("", {"means": "[true, 0.5]"}, "means[0]"),
        ("", {"means": '["0.5"]'}, "means[0]"),
        ("", {"channels": '["identity", "identity"]'}, "channel"),
        ("", {"channel": "1"}, "channel"),
        ("", {"channel": '"epsilon"'}, "channel"),
        ("", {"channel": "{}"}, "channel"),
        ("", {"channel": "[{ epsilon = 1 }, { epsilon = 1 }]"}, "channel"),
        ("", {"channel": "{ epsilon = 0 }"}, "channel.epsilon"),
        ("", {"channel": '{ epsilon = "1" }'}, "channel.epsilon"),
        ("", {"channel": "{ epsilon = [1, 2] }"}, "channel.epsilon"),
        ("", {"channel": "{ epsilon = 1, p00 = 1 }"}, "channel.p00"),
        ("", {"channel": "{ p00 = 0.5 }"}, "channel.p11"),
        ("", {"channel": "{ p00 = 1.5, p11 = 1 }"}, "channel.p00"),
        ("", {"channel": "{ p00 = true, p11 = 1 }"}, "channel.p00"),
        ("", {"channel": "{ p00 = 0.5, p11 = 0.5 }"}, "channel.(p00 + p11)"),
        ("", {"channel": "{ design = 1 }"}, "channel.design"),
        ("", {"channel": '{ design = "forced", truth = 0.5 }'}, "channel.yes"),
        (
            "",
            {"channel": '{ design = "forced", truth = 0.5, yes = 0.7 }'},
            "channel.(truth + yes)",
        ),
        ("", {"channel": "{ points = 1 }"}, "channel.points"),
        ("", {"channel": "{ points = [[0, 0.1], [1]] }"}, "channel.points[1]"),
        ("", {"channel": "{ points = [[0, 0.1], [nan, 0.2]] }"}, "channel.points[1][0]"),
        ("", {"channel": "{ points = [[0, 0.1], [1, 0.1]] }"}, "channel.g"),
        ("", {"channel": None, "channels": "[]"}, "channels"),
        ("", {"channel": None, "channels": '"identity"'}, "channels"),
        ("", {"channel": None, "channels": '{ red = "identity" }'}, "channels.blue"),
        (
            "",
            {"channel": None, "channels": '["identity", { p00 = 2, p11 = 1 }]'},
            "channels[1].p00",
        ),
        (
            "",
            {"channel": None, "channels": '{ red = "identity", blue = { epsilon = -1 } }'},
            "channels.blue.epsilon",
        ),
        (
            "",
            {"channel": None, "means": "[0.5]", "channels": '{ 0 = "identity" }'},
            "channels",
        ),
        ("", {"policies": "[]"}, "policies"),
        ("", {"policies": '"TS-CF"'}, "policies"),
        ("", {"policies": "[1]"}, "policies[0]"),
        ("", {"policies": "[{ c = 1 }]"}, "policies[0].rule"),
        ("", {"policies": "[{ rule = 1 }]"}, "policies[0].rule"),
        ("", {"policies": '[{ rule = "UCB", c = -1 }]'}, "policies[0].c"),
        ("", {"policies": '[{ rule = "UCB", c = "1" }]'}, "policies[0].c"),
        ("", {"policies": '[{ rule = "UCB", feedback = "true" }]'}, "policies[0].feedback"),
        ("", {"policies": '[{ rule = "UCB", name = 1 }]'}, "policies[0].name"),
        ("", {"policies": '[{ rule = "UCB", name = "" }]'}, "policies[0].name"),
        ("", {"policies": '[{ rule = "DPUCBInt", calibrated = 1 }]'}, "policies[0].calibrated"),
        ("", {"policies": '["TS-CF", { rule = "TS" }]'}, "policies[1].name"),
        (
            "",
            {"policies": '["WR(UCB)"]', "channel": "{ points = [[0, 0.1], [1, 0.9]] }"},
            "channels",
        ),
        ("", {"stop": "1"}, "stop"),
        ("", {"stop": "{ delta = 0 }"}, "stop.delta"),
        ("", {"stop": "{ delta = 0.6 }"}, "stop.delta"),
        ("", {"stop": '{ delta = "0.05" }'}, "stop.delta"),
        ("", {"stop": "{ tolerance = -0.1 }"}, "stop.tolerance"),
        ("", {"stop": "{ tolerance = nan }"}, "stop.tolerance"),
        ("", {"stop": "{ alpha = 0.05 }"}, "stop.alpha"),
        ("", {"stop": "{ expect = 0.05 }"}, "stop.expect"),
        ("", {"stop": "{ expect = { rate = 0.05 } }"}, "stop.expect.difference"),
        ("", {"stop": "{ expect = { rate = 0.5, difference = 0 } }"}, "stop.expect.difference"),
        ("", {"stop": "{ expect = { rate = 1, difference = 0.1 } }"}, "stop.expect.rate"),
        ("", {"stop": "{ expect = { rate = 0.5, diff = 0.1 } }"}, "stop.expect.diff"),
        ("", {"stop": "{}", "policies": '["WR(TS)"]'}, "stop"),
        ("", {"stop": "{}", "means": "[0.5]"}, "stop"),
        ("", {"sweep": "1"}, "sweep"),
        ("[sweep]", {}, "sweep"),
        ("[sweep]\nc = [1]\nepsilon = [1]", {}, "sweep"),
        ("[sweep]\nc = 1", {}, "sweep.c"),
        ("[sweep]\nc = []", {}, "sweep.c"),
        ("[sweep]\nc = [1, 1.0]", {}, "sweep.c"),
        ('[sweep]\nc = [1, "2"]', {}, "sweep.c[1]"),
        ("[sweep]\nc = [1, -1]", {}, "sweep.c"),
        ("[sweep]\nc = [1]\narm = 0", {}, "sweep.arm"),
        ("[sweep]\nc = [1]", {"policies": '["TS-CF"]'}, "sweep.c"),
        ("[sweep]\nc = [1]", {"policies": '[{ rule = "UCB", c = 0 }]'}, "sweep.c"),
        ("[sweep]\nepsilon = [1]", {}, "channel"),
        ("[sweep]\nepsilon = [1, 0]", {"channel": None}, "sweep.epsilon"),
        ("[sweep]\nmean = [1]", {}, "sweep.arm"),
        ("[sweep]\nmean = [1]\narm = 0", {}, "sweep.arm"),
        ("[sweep]\nmean = [1]\narm = true", {"means": "[0.9, 0.6]"}, "sweep.arm"),
        ("[sweep]\nmean = [1]\narm = [0]", {"means": "[0.9, 0.6]"}, "sweep.arm"),
        ('[sweep]\nmean = [1, 2]\narm = "red"', {}, "sweep.mean[1]"),
    ],
)
def test_a_wrong_value_is_refused_by_its_place(
    after: str, changes: dict[str, Any], field: str
) -> None:
    assert refusal(after, **changes).field == field


def test_a_stop_is_a_certificate() -> None:
    assert parse().stop is None
    assert parse("[stop]").stop == Certificate()
    asked = parse("[stop]\ndelta = 0.1\nexpect.rate = 0.05\nexpect.difference = 0.01").stop
    assert asked == Certificate(0.1, expect=Expect(rate=0.05, difference=0.01))
    assert parse(stop="{ tolerance = 0.02 }").stop == Certificate(tolerance=0.02)


def test_a_specification_with_a_stop_runs_as_simulate_does() -> None:
    text = "{ delta = 0.1, tolerance = 0.05 }"
    result = parse(horizon="500", replicates="2", stop=text).run()
    assert result.stop == Certificate(0.1, tolerance=0.05)
    assert result.stopping_summary().index.tolist() == ["kl-UCB-CF", "TS-CF"]


def test_the_stop_of_the_example_is_read_too() -> None:
    stop = EXAMPLE[EXAMPLE.index("# [stop]") : EXAMPLE.index("# Everything again")]
    text = EXAMPLE + re.sub("^# ?", "", stop, flags=re.MULTILINE)
    expected = Certificate(0.05, tolerance=0.02, expect=Expect(rate=0.8, difference=0.1))
    assert parse_specification(text).stop == expected


def test_a_whole_number_with_a_point_is_spelled_out() -> None:
    assert str(refusal(horizon="1e5")).endswith("give a whole number without point: 100_000")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("horizon = 10\nmeans = [0.9,, 0.8]", "line 2, column 14"),
        ("horizon = 10\nhorizon = 20", "line 2, column 13"),
        ("horizon = 10\nmeans = [0.9", "line 2, column 13"),
        ("horizon 10", "line 1, column 9"),
    ],
)
def test_wrong_syntax_is_refused_with_line_and_column(text: str, place: str) -> None:
    with pytest.raises(InvalidInput, match="this is not TOML") as caught:
        parse_specification(text, source="mine.toml")
    assert place in caught.value.reason
    assert caught.value.value == "mine.toml"


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nested too deeply"):
        parse_specification("a = " + "[" * 100_000)


def test_an_empty_specification_says_what_it_needs() -> None:
    with pytest.raises(InvalidInput, match="the specification needs this key"):
        parse_specification("")


def test_the_example_is_valid_as_it_stands_and_with_every_sweep() -> None:
    assert parse_specification(EXAMPLE).sweep is None
    start = EXAMPLE.index("# [sweep]")
    sweeps = re.sub("^# ?", "", EXAMPLE[start:], flags=re.MULTILINE).split("[sweep]")[1:]
    parameters = []
    for text in sweeps:
        base = EXAMPLE[:start]
        if "epsilon" in text:
            base = base.replace("\nchannel = ", "\n# ")
        swept = parse_specification(f"{base}[sweep]{text}").sweep
        assert swept is not None
        parameters.append(swept.parameter)
    assert parameters == ["epsilon", "c", "mean"]


def test_every_channel_in_the_example_is_valid() -> None:
    lines = [line[4:] for line in EXAMPLE.splitlines() if line.startswith(("#   {", '#   "'))]
    assert len(lines) == 10
    for line in lines:
        parse(channel=line, policies='["kl-UCB-CF", "TS-CF"]')


def test_menus_and_mechanisms() -> None:
    text = "{ menu = [{ epsilon = 0.25, share = 0.5 }, { epsilon = 4, share = 0.5 }] }"
    assert set(parse(channel=text).problems[0].channels) == {menu({0.25: 0.5, 4: 0.5})}
    text = "{ zero = [0.5, 0.2, 0.3], one = [0.2, 0.5, 0.3] }"
    three = Mechanism(zero=[0.5, 0.2, 0.3], one=[0.2, 0.5, 0.3])
    assert set(parse(channel=text).problems[0].channels) == {three}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{ menu = [{ epsilon = 1 }] }", "channel.menu[0].share"),
        ("{ menu = { epsilon = 1 } }", "channel.menu"),
        ("{ menu = [{ epsilom = 1, share = 1 }] }", "channel.menu[0].epsilom"),
        ("{ menu = [{ epsilon = 1, share = 0.5 }] }", "channel"),
        ("{ zero = [0.5, 0.5] }", "channel.one"),
        ("{ zero = [0.5, 0.4], one = [0.2, 0.8] }", "channel"),
    ],
)
def test_impossible_menus_and_mechanisms_are_refused(text: str, field: str) -> None:
    assert str(refusal(channel=text)).startswith(field)


def test_a_file_is_read_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(toml(), encoding="utf-8")
    assert load_specification(path) == parse()
    assert load_specification(str(path)) == parse()
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_text(encoding="utf-8") == toml()


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such file"):
        load_specification(tmp_path / "missing.toml")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_specification(tmp_path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"name = '\xe9'")
    with pytest.raises(InvalidInput, match="UTF-8"):
        load_specification(latin)


def test_a_specification_does_not_change() -> None:
    with pytest.raises(AttributeError):
        parse().horizon = 5  # type: ignore[misc]  # it is refused
