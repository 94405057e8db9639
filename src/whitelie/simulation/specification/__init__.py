"""A simulation described by a short TOML file, read and checked in full before any work.

The keys are those of `Problem`, the channels, the policies and `simulate`, and mean the same;
`EXAMPLE` shows them.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib import resources
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whitelie.certificate import Certificate, Expect
from whitelie.channel import IDENTITY, AnyChannel, Mechanism, Menu, Monotone, RandomizedResponse
from whitelie.errors import InvalidInput
from whitelie.policy import POLICIES, Policy
from whitelie.problem import Problem
from whitelie.simulation.specification.tables import (
    at,
    check_keys,
    inside,
    listed,
    nearest,
    number,
    required,
    whole,
)
from whitelie.simulation.stopping import check_stop

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from whitelie.simulation.result import Result

EXAMPLE = resources.files(__package__).joinpath("example.toml").read_text(encoding="utf-8")
"""A commented specification that runs."""

_MOST_STEPS = 2**31 - 1
_KEYS = (
    *("horizon", "replicates", "seed", "checkpoints"),
    *("means", "channel", "channels", "policies", "stop", "sweep"),
)
_DESIGNS: dict[str, tuple[Callable[..., RandomizedResponse], tuple[str, ...]]] = {
    "warner": (RandomizedResponse.warner, ("p",)),
    "forced": (RandomizedResponse.forced, ("truth", "yes")),
    "unrelated": (RandomizedResponse.unrelated, ("truth", "alpha")),
    "positive_unlabelled": (RandomizedResponse.positive_unlabelled, ("seen",)),
}
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in POLICIES}
_LABELS: dict[str, Policy] = {
    title: kind(feedback=feedback)
    for kind in _KINDS.values()
    for feedback, title in kind.titles.items()
}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One parameter, which takes each of the values: "epsilon", "c", or the "mean" of one arm."""

    parameter: str
    values: tuple[float, ...]
    arm: str | int | None = None

    @property
    def coordinate(self) -> str:
        """The name of the parameter in a result, where "mean" is the mean regret."""
        return "mean_reward" if self.parameter == "mean" else self.parameter


@dataclass(frozen=True, kw_only=True)
class Specification:
    """A simulation: a problem and named policies for each value of the sweep, one without sweep."""

    problems: tuple[Problem, ...]
    policies: tuple[dict[str, Policy], ...]
    horizon: int
    replicates: int
    seed: int
    checkpoints: tuple[int, ...] | None = None
    sweep: Sweep | None = None
    stop: Certificate | None = None

    def run(
        self,
        *,
        jobs: int | None = None,
        executor: "Executor | None" = None,
        store: str | PathLike[str] | None = None,
        progress: bool = False,
    ) -> "Result":
        """Simulate it; the keywords are those of `simulate`."""
        from whitelie.simulation.work import simulate, simulate_many  # noqa: PLC0415 (refusing is fast)

        settings: dict[str, Any] = {
            "horizon": self.horizon,
            "replicates": self.replicates,
            "seed": self.seed,
            "checkpoints": self.checkpoints,
            "stop": self.stop,
            "jobs": jobs,
            "executor": executor,
            "store": store,
            "progress": progress,
        }
        if self.sweep is None:
            return simulate(self.problems[0], self.policies[0], **settings)
        return simulate_many(
            list(zip(self.problems, self.policies, strict=True)),
            coordinate=self.sweep.coordinate,
            values=self.sweep.values,
            **settings,
        )


def load_specification(path: str | PathLike[str]) -> Specification:
    """Return the simulation that a TOML file describes, or refuse the file."""
    try:
        text = Path(path).read_bytes().decode()
    except FileNotFoundError:
        raise InvalidInput("specification", str(path), "there is no such file") from None
    except OSError as error:
        reason = f"this file cannot be read ({error.strerror})"
        raise InvalidInput("specification", str(path), reason) from None
    except UnicodeDecodeError:
        raise InvalidInput("specification", str(path), "this is not text in UTF-8") from None
    return parse_specification(text, source=str(path))


def parse_specification(text: str, *, source: str = "text") -> Specification:
    """Return the simulation that a TOML text describes; `source` says where the text is from.

    >>> specification = parse_specification('''
    ... horizon = 1_000
    ... replicates = 20
    ... seed = 1
    ... means = [0.9, 0.8]
    ... channel = { epsilon = 1 }
    ... policies = ["kl-UCB-CF", { rule = "UCB", c = 0 }]
    ... ''')
    >>> specification.policies[0]["UCB-CF (c=0)"]
    UCB(feedback='corrected', c=0)
    """
    data = _toml(text, source)
    check_keys("", data, _KEYS)
    means = _means(required("", data, "means", "the mean reward of each arm"))
    sweep = _sweep(data["sweep"], means) if "sweep" in data else None
    problems = _problems(data, means, sweep)
    policies = _policies(data, sweep)
    stop = _stop(data["stop"]) if "stop" in data else None
    for problem, named in zip(problems, policies, strict=True):
        for policy in named.values():
            policy.check_channels(problem.channels)
        check_stop(stop, problem, named)
    horizon = required("", data, "horizon", "the number of decisions in one replicate")
    horizon = whole("horizon", horizon, most=_MOST_STEPS)
    if horizon < len(means):
        raise InvalidInput("horizon", horizon, f"too short to pull each of {len(means)} arms once")
    replicates = required("", data, "replicates", "the number of independent repetitions")
    seed = required("", data, "seed", "a whole number from 0 up: the same seed, the same numbers")
    return Specification(
        problems=problems,
        policies=policies,
        horizon=horizon,
        replicates=whole("replicates", replicates, most=_MOST_STEPS),
        seed=whole("seed", seed, least=0, most=2**64 - 1),
        checkpoints=_checkpoints(data["checkpoints"], horizon) if "checkpoints" in data else None,
        sweep=sweep,
        stop=stop,
    )


def _toml(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        lines = text.rstrip("\n").split("\n")
        end = f"at line {len(lines)}, column {len(lines[-1]) + 1}: the end"
        reason = str(error).replace("at end of document", end)
    except RecursionError:
        reason = "lists or tables are nested too deeply"
    except ValueError as error:  # of a number with thousands of digits
        reason = str(error)
    raise InvalidInput("specification", source, f"this is not TOML: {reason}")


def _means(given: Any) -> dict[str | int, float]:
    right = "give a list of numbers, or a table {name = number}, of at least one arm"
    if not isinstance(given, dict | list) or not given:
        raise InvalidInput("means", given, right)
    named = given if isinstance(given, dict) else dict(enumerate(given))
    return {arm: _mean(at("means", arm), mean) for arm, mean in named.items()}


def _mean(path: str, given: Any) -> float:
    mean = number(path, given)
    if not 0 <= mean <= 1:
        raise InvalidInput(path, given, "a mean reward lies in [0, 1]")
    return mean


def _sweep(given: Any, means: dict[str | int, float]) -> Sweep:
    right = "give a table with one list of values: of epsilon, of c or of mean"
    if not isinstance(given, dict):
        raise InvalidInput("sweep", given, right)
    check_keys("sweep", given, ("epsilon", "c", "mean", "arm"))
    parameters = [key for key in given if key != "arm"]
    if len(parameters) != 1:
        raise InvalidInput("sweep", given, right)
    parameter = parameters[0]
    if parameter != "mean" and "arm" in given:
        raise InvalidInput("sweep.arm", given["arm"], f"{parameter} is swept for all arms together")
    path = at("sweep", parameter)
    values = given[parameter]
    if not isinstance(values, list) or not values:
        raise InvalidInput(path, values, "give a list of at least one number")
    check = _mean if parameter == "mean" else number
    numbers = tuple(check(at(path, index), value) for index, value in enumerate(values))
    if len(set(numbers)) < len(numbers):
        raise InvalidInput(path, values, "one value is given twice")
    if parameter != "mean":
        return Sweep(parameter=parameter, values=numbers)
    arm = required("sweep", given, "arm", "the arm whose mean is swept")
    # True and 1.0 would pass for the arm 1.
    if type(arm) not in (str, int) or arm not in means:
        raise InvalidInput("sweep.arm", arm, f"there is no such arm; {nearest(arm, means)}")
    return Sweep(parameter=parameter, values=numbers, arm=arm)


def _problems(
    data: dict[str, Any], means: dict[str | int, float], sweep: Sweep | None
) -> tuple[Problem, ...]:
    given = [key for key in ("channel", "channels") if key in data]
    if sweep and sweep.parameter == "epsilon":
        if given:
            reason = "leave it out: the sweep over epsilon sets the channel of all arms"
            raise InvalidInput(given[0], data[given[0]], reason)
        with inside("sweep"):
            return tuple(
                Problem(means, RandomizedResponse.from_epsilon(value)) for value in sweep.values
            )
    if len(given) != 1:
        reason = 'give either channel, for all arms ("identity" if there is none), or channels'
        raise InvalidInput("channel", data.get("channel"), reason)
    channels: AnyChannel | list[AnyChannel]
    if "channel" in data:
        channels = channel_at("channel", data["channel"])
    else:
        channels = _channels(data["channels"], means)
    if sweep and sweep.parameter == "mean":
        return tuple(Problem(means | {sweep.arm: mean}, channels) for mean in sweep.values)
    return (Problem(means, channels),) * (len(sweep.values) if sweep else 1)


def _channels(given: Any, means: dict[str | int, float]) -> list[AnyChannel]:
    names = [arm for arm in means if isinstance(arm, str)]
    if isinstance(given, dict) and names:
        check_keys("channels", given, names)
        named = {name: required("channels", given, name, "this arm's channel") for name in names}
        return [channel_at(at("channels", name), channel) for name, channel in named.items()]
    if isinstance(given, list) and len(given) == len(means):
        return [channel_at(at("channels", index), channel) for index, channel in enumerate(given)]
    right = f"a list of {len(means)} channels, one for each arm"
    reason = f"give {right}, or a table by their names" if names else f"give {right}"
    raise InvalidInput("channels", given, reason)


def channel_at(path: str, given: Any) -> AnyChannel:
    """Return the channel that a table describes; `path` says where it stands."""
    if given == "identity":
        return IDENTITY
    if not isinstance(given, dict):
        right = 'a channel is "identity", or a table such as { epsilon = 1 }'
        raise InvalidInput(path, given, right)
    kinds = ("design", "points", "menu", "zero", "epsilon", "epsilon0", "epsilon1")
    kind = next((key for key in kinds if key in given), "p00, p11")
    if kind in _TABLES:
        return _TABLES[kind](path, given)
    if kind == "points":
        check_keys(path, given, ("points",))
        points = _points(at(path, "points"), given["points"])
        with inside(path):
            return Monotone.from_points(points)
    if kind == "epsilon":
        check_keys(path, given, ("epsilon",))
        epsilon = number(at(path, "epsilon"), given["epsilon"])
        with inside(path):
            return RandomizedResponse.from_epsilon(epsilon)
    check_keys(
        path,
        given,
        (
            "epsilon",
            "epsilon0",
            "epsilon1",
            "p00",
            "p11",
            "points",
            "design",
            "menu",
            "zero",
            "one",
        ),
    )
    if not given:
        reason = "give epsilon, or p00 and p11, or points, or a design, or a menu"
        raise InvalidInput(path, given, reason)
    what = "the probability that a reward of {0} is reported as {0}"
    p00, p11 = (
        number(at(path, key), required(path, given, key, what.format(key[-1])))
        for key in ("p00", "p11")
    )
    with inside(path):
        return RandomizedResponse(p00=p00, p11=p11)


def _mechanism(path: str, given: dict[str, Any]) -> AnyChannel:
    check_keys(path, given, ("zero", "one"))
    zero, one = (required(path, given, key, "a list of probabilities") for key in ("zero", "one"))
    with inside(path):
        return Mechanism(zero, one)


def _menu(path: str, given: dict[str, Any]) -> AnyChannel:
    check_keys(path, given, ("menu",))
    offer, place = given["menu"], at(path, "menu")
    if not isinstance(offer, list) or not all(isinstance(entry, dict) for entry in offer):
        reason = "give a list of channels with their shares: [{ epsilon = 1, share = 0.5 }, …]"
        raise InvalidInput(place, offer, reason)
    shares, mechanisms = [], []
    for index, entry in enumerate(offer):
        here = at(place, index)
        share = required(here, entry, "share", "the share of people who choose it")
        shares.append(number(at(here, "share"), share))
        rest = {key: value for key, value in entry.items() if key != "share"}
        mechanisms.append(channel_at(here, rest))
    with inside(path):
        return Menu(mechanisms, shares)


def _two_budgets(path: str, given: dict[str, Any]) -> AnyChannel:
    check_keys(path, given, ("epsilon0", "epsilon1"))
    what = "the budget of a report of {0}"
    epsilon0, epsilon1 = (
        number(at(path, key), required(path, given, key, what.format(key[-1])))
        for key in ("epsilon0", "epsilon1")
    )
    with inside(path):
        return RandomizedResponse.from_epsilons(epsilon0=epsilon0, epsilon1=epsilon1)


def _design(path: str, given: dict[str, Any]) -> AnyChannel:
    name = given["design"]
    if not isinstance(name, str) or name not in _DESIGNS:
        reason = f"there is no such design; {nearest(name, _DESIGNS)}"
        raise InvalidInput(at(path, "design"), name, reason)
    build, parameters = _DESIGNS[name]
    check_keys(path, given, ("design", *parameters))
    numbers = {
        key: number(at(path, key), required(path, given, key, f"a probability, for {name}"))
        for key in parameters
    }
    with inside(path):
        return build(**numbers)


_TABLES: dict[str, Callable[[str, dict[str, Any]], AnyChannel]] = {
    "design": _design,
    "menu": _menu,
    "zero": _mechanism,
    "epsilon0": _two_budgets,
    "epsilon1": _two_budgets,
}
"""How a channel is read from a table with this key."""


def _points(path: str, given: Any) -> list[tuple[float, float]]:
    right = "give a list of pairs [mean reward, mean feedback]"
    if not isinstance(given, list):
        raise InvalidInput(path, given, right)
    for index, point in enumerate(given):
        if not isinstance(point, list) or len(point) != 2:
            raise InvalidInput(at(path, index), point, right)
    return [
        (number(f"{path}[{index}][0]", x), number(f"{path}[{index}][1]", y))
        for index, (x, y) in enumerate(given)
    ]


def _policies(data: dict[str, Any], sweep: Sweep | None) -> tuple[dict[str, Policy], ...]:
    given = required("", data, "policies", 'a list such as ["kl-UCB-CF", "TS-CF"]')
    if not isinstance(given, list) or not given:
        raise InvalidInput("policies", given, 'give a list such as ["kl-UCB-CF", "TS-CF"]')
    named: dict[str, Any] = {}
    swept = []
    for index, one in enumerate(given):
        path = at("policies", index)
        name, policy = policy_at(path, one)
        if name in named:
            reason = "two policies have this name; give one of them a name of its own"
            raise InvalidInput(at(path, "name"), name, reason)
        named[name] = policy
        if hasattr(policy, "c") and not (isinstance(one, dict) and "c" in one):
            swept.append(name)
    if sweep is None or sweep.parameter != "c":
        return (named,) * (len(sweep.values) if sweep else 1)
    if not swept:
        reason = "there is no policy to tune: none has a c, or each says its own"
        raise InvalidInput("sweep.c", list(sweep.values), reason)
    with inside("sweep"):
        return tuple(
            named | {name: replace(named[name], c=value) for name in swept}
            for value in sweep.values
        )


def policy_at(path: str, given: Any) -> tuple[str, Any]:
    """Return the name and the policy that a name or table describes."""
    if isinstance(given, str):
        if given not in _LABELS:
            reason = f"there is no policy of this name; {nearest(given, _LABELS)}"
            raise InvalidInput(path, given, reason)
        return given, _LABELS[given]
    if not isinstance(given, dict):
        reason = 'a policy is a name such as "kl-UCB-CF", or a table such as { rule = "KLUCB" }'
        raise InvalidInput(path, given, reason)
    if "rule" not in given:
        known = {field.name for kind in _KINDS.values() for field in fields(kind)}
        check_keys(path, given, ("rule", "name", *sorted(known)))
    rule = required(path, given, "rule", f"one of {listed(_KINDS)}")
    if not isinstance(rule, str) or rule not in _KINDS:
        reason = f"there is no such rule; {nearest(rule, _KINDS)}"
        raise InvalidInput(at(path, "rule"), rule, reason)
    kind = _KINDS[rule]
    check_keys(path, given, ("rule", "name", *(field.name for field in fields(kind))))
    tuning = {key: value for key, value in given.items() if key not in ("rule", "name")}
    if not isinstance(tuning.get("calibrated", False), bool):
        raise InvalidInput(at(path, "calibrated"), tuning["calibrated"], "give true or false")
    with inside(path):
        policy = kind(**tuning)
    name = given.get("name", policy.label)
    if not isinstance(name, str) or not name:
        raise InvalidInput(at(path, "name"), name, "give a text to call the policy by")
    return name, policy


def _stop(given: Any) -> Certificate:
    """Return the certificate at which replicates stop."""
    if not isinstance(given, dict):
        raise InvalidInput("stop", given, "give a table, such as { delta = 0.05 }")
    check_keys("stop", given, ("delta", "tolerance", "expect"))
    asked: dict[str, Any] = {
        key: number(at("stop", key), given[key]) for key in ("delta", "tolerance") if key in given
    }
    if "expect" in given:
        asked["expect"] = _expect("stop.expect", given["expect"])
    with inside("stop"):
        return Certificate(**asked)


def _expect(path: str, given: Any) -> Expect:
    if not isinstance(given, dict):
        right = "give a table, such as { rate = 0.05, difference = 0.01 }"
        raise InvalidInput(path, given, right)
    check_keys(path, given, ("rate", "difference"))
    what = {"rate": "the usual rate", "difference": "the difference that matters"}
    numbers = {key: number(at(path, key), required(path, given, key, what[key])) for key in what}
    with inside("stop"):
        return Expect(**numbers)


def _checkpoints(given: Any, horizon: int) -> tuple[int, ...]:
    if not isinstance(given, list) or not given:
        raise InvalidInput("checkpoints", given, "give a list of times, or leave it out")
    times = tuple(
        whole(at("checkpoints", index), time, most=horizon) for index, time in enumerate(given)
    )
    if any(late <= early for early, late in pairwise(times)):
        raise InvalidInput("checkpoints", given, "the times must increase")
    return times
