"""The price sheet: a plan as one page to hand to those who decide, and to print."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from whitelie.composition import rounded_up
from whitelie.estimate import ALPHA
from whitelie.page import Table, render
from whitelie.planning.budget import Budget
from whitelie.planning.curves import Marked, marked_options, pictures
from whitelie.planning.design import YEAR, Design
from whitelie.planning.knowing import LEVEL, SURE, Chance, Time
from whitelie.planning.option import Mechanism, People, amount, delay_text, percent
from whitelie.planning.proposal import Plan
from whitelie.planning.runs import KNOWN, RECENT, SHARE
from whitelie.policy import KLUCB, TS, UCB, UCB1, Policy

TITLE = "What privacy costs"
POLICIES: dict[type[Policy], str] = {
    TS: "Thompson sampling",
    KLUCB: "kl-UCB",
    UCB: "UCB",
    UCB1: "UCB1",
}
FEW = 4
"""So many different rates are listed; of more the smallest and largest are given."""


def sheet(plan: Plan) -> str:
    """Return the price sheet of a plan as the text of one HTML file."""
    marked = marked_options(plan)
    page = render(
        "planning/sheet.html",
        title=TITLE,
        design=_design(plan.design),
        advice=_advice(plan),
        pictures=pictures(plan),
        beyond=any(one.option.know.days_high is None for one in marked),
        left_out=_left_out(marked),
        options=_options(plan, marked),
        gains=_gains(marked),
        theory=_theory(plan, marked),
        terms=_terms(plan),
        provenance=_provenance(plan),
    )
    return page.replace(" %", "\N{NO-BREAK SPACE}%")


@dataclass(frozen=True)
class Advice:
    """The recommendation in words: the budget, what is recommended, and if the rates differ."""

    budget: str
    met: bool
    text: str
    guesses: tuple[tuple[str, str, bool], ...]


def _left_out(marked: Sequence[Marked]) -> str:
    """Name the options that an axis of finite epsilons cannot show."""
    endless = [one.option for one in marked if one.option.epsilon == math.inf]
    if not endless:
        return ""
    names = [reveals(option.mechanism).partition("\n")[0] for option in endless]
    return f"Not on the axis, since ε = ∞: {'; '.join(names)}."


def _design(design: Design) -> str:
    """Describe a design in a sentence or two."""
    arriving = "" if design.arrive == 1 else f", of which {percent(design.arrive)} arrive"
    late = f" A report arrives {delay_text(design)}." if design.delay else ""
    several = design.reports_per_person
    each = f" Each person sends {several} reports in all." if several > 1 else ""
    rates = sorted(design.rates, reverse=True)
    lead = 100 * (rates[0] - max(rate for rate in rates if rate < rates[0]))
    points = "percentage point" if f"{lead:.3g}" == "1" else "percentage points"
    policy = f"{POLICIES[type(design.policy)]} ({design.policy.label})"
    return (
        f"{len(rates)} variants {_rates(rates)}. The difference that matters is "
        f"{lead:.3g} {points}. {design.traffic:,.10g} answers are asked for on a day"
        f"{arriving}.{late}{each} {policy} decides what is shown."
    )


def _rates(rates: Sequence[float]) -> str:
    """Return expected rates in words, largest first.

    >>> _rates([0.06, 0.05, 0.05])
    'with expected rates: one at 6 % and two at 5 %'
    """
    different = list(dict.fromkeys(rates))
    if len(different) > FEW:
        return f"with expected rates from {percent(different[-1])} to {percent(different[0])}"
    if len(different) == len(rates):
        return f"with expected rates {_listed([percent(rate) for rate in different])}"
    counts = [f"{_count(rates.count(rate))} at {percent(rate)}" for rate in different]
    return f"with expected rates: {_listed(counts)}"


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _count(number: int) -> str:
    words = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number - 1] if number <= len(words) else str(number)


def _advice(plan: Plan) -> Advice | None:
    found = plan.recommendation
    if found is None:
        return None
    return Advice(
        budget=_budget(found.budget),
        met=found.met,
        text=str(found)[:1].upper() + str(found)[1:],
        guesses=tuple(
            (guess.guess, found.budget.words(guess.spent), guess.met) for guess in found.sensitivity
        ),
    )


def _budget(budget: Budget) -> str:
    if budget.kind == "lose_at_most":
        return f"lose at most {amount(budget.amount)} rewards in a year"
    return f"know the best variant within {budget.amount:g} days"


def _options(plan: Plan, marked: Sequence[Marked]) -> Table:
    columns = [
        "ε",
        "What one report reveals",
        "One noise-free report is worth",
        "Rewards lost in a year\nmean; 90 % of runs",
        "Until one knows\n95 % interval",
        "Until intervals separate\n95 % interval",
        "Chance to end on a wrong variant",
    ]
    several = plan.design.reports_per_person > 1
    if several:
        columns.append(f"ε of {plan.design.reports_per_person} reports of one person")
    rows = [_row(one, several=several) for one in marked]
    return Table("", tuple(columns), tuple(rows))


def _row(one: Marked, *, several: bool) -> tuple[str, ...]:
    option = one.option
    last = option.lost
    cells = [
        f"{one.name}\n{one.mark}" if one.mark else one.name,
        reveals(option.mechanism),
        f"{_figures(option.mechanism.worth)}\nof these",
        f"{amount(option.lost_rewards)}\n{amount(last.lucky[-1])} to {amount(last.unlucky[-1])}",
        _time(option.know),
        _time(option.separate),
        _chance(option.wrong),
    ]
    return (*cells, _people(option.people)) if several else tuple(cells)


def reveals(mechanism: Mechanism) -> str:
    r"""Say what one report tells about the person who sent it.

    >>> from whitelie.channel import RandomizedResponse
    >>> print(reveals(Mechanism(RandomizedResponse.from_epsilon(8), 1.0)))
    Truthful with probability 99.966 %
    moves anyone's belief by at most a factor 2,990
    """
    return f"{mechanism.truth[0].upper()}{mechanism.truth[1:]}\n{mechanism.belief}"


def _time(time: Time) -> str:
    text, _, ends = str(time).partition(" (")
    return f"{text}\n{ends.removesuffix(')')}" if ends else text


def _chance(chance: Chance) -> str:
    most = float(rounded_up(100 * chance.high, 2))
    return f"{percent(chance.estimate)}\nat most {min(most, 100.0):g} %"


def _people(people: People) -> str:
    if people.basic == math.inf:
        return "∞"
    total = f"{people.basic:g}"
    if not people.composed < people.basic * (1 - 1e-9):
        return total
    return f"{total}\nor {rounded_up(people.composed, 3)} with δ = {people.delta:g}"


def _gains(marked: Sequence[Marked]) -> list[tuple[str, str]]:
    """Return how many times as much a report tells where only a yes is sensitive."""
    unequal = [(one.name, one.option.unequal) for one in marked]
    return [(name, _figures(gain.only_yes)) for name, gain in unequal if gain is not None]


def _theory(plan: Plan, marked: Sequence[Marked]) -> Table:
    """Return the bounds; those above what can be lost at all say nothing, and are left out."""
    design = plan.design
    most = YEAR * design.traffic * (max(design.rates) - min(design.rates))
    columns = ["ε", "C", "C·ln\N{NO-BREAK SPACE}T"]
    bounded = any(one.option.theory.leading is not None for one in marked)
    explicit = any(one.option.theory.explicit is not None for one in marked)
    columns += ["Corollary 2, leading term"] * bounded
    columns += ["Theorem 2, upper bound"] * explicit
    rows = []
    for one in marked:
        theory = one.option.theory
        bounds = [theory.lower, *[theory.leading] * bounded, *[theory.explicit] * explicit]
        texts = ["–" if b is None or b > most else amount(b) for b in bounds]
        rows.append((one.name, _figures(theory.constant), *texts))
    return Table("", tuple(columns), tuple(rows))


def _terms(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return the words of the sheet and their meanings."""
    known, sure, arms = percent(KNOWN), percent(SURE), len(plan.design.rates)
    return (
        (
            "ε",
            "how much one report can say about the person who sent it. It multiplies or divides "
            "the odds of whatever anyone believed by at most e to the power ε, the factor in the "
            "table. Smaller is more private. k reports of one person cost k·ε together.",
        ),
        (
            "Rewards lost (regret)",
            "what always showing the best variant would have earned more, on all answers "
            "asked for in a year.",
        ),
        (
            "Until one knows",
            f"the first time at which in {sure} of simulated runs the best variant had more than "
            f"{known} of the last {percent(1 / RECENT)} of reports.",
        ),
        (
            "Until intervals separate",
            f"the first time by which in {sure} of runs one variant’s confidence interval lay "
            f"above all others. The intervals may be watched all the time; each is at level "
            f"{percent(ALPHA)}/{arms}. A learner that stops showing poor variants may never "
            "get there.",
        ),
        (
            "Wrong variant",
            "the one with most of the last reports of the year is not the best; “at most” is the "
            f"upper end of a {percent(LEVEL)} interval.",
        ),
    )


def _provenance(plan: Plan) -> str:
    return (
        f"Simulated: {plan.replicates:,} runs of a year each, in batches of {percent(SHARE)} of "
        f"the reports before; seed {plan.seed}; whitelie {version('whitelie')}."
    )


def _figures(value: float) -> str:
    """Return a number to three figures, without an exponent.

    >>> _figures(299.26), _figures(1837.9), _figures(1.0), _figures(math.inf)
    ('299', '1,840', '1.00', '∞')
    """
    if value == math.inf:
        return "∞"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:#.3g}"
