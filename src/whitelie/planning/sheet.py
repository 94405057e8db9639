"""The price sheet: a plan as one page, to print or to hand to those who decide."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from whitelie.composition import rounded_up
from whitelie.page import Table, render
from whitelie.planning.budget import Budget
from whitelie.planning.certified import Certified
from whitelie.planning.curves import Marked, figures, frontier_page_figure, marked_options
from whitelie.planning.design import DAYS_PER_YEAR, Design
from whitelie.planning.option import (
    Mechanism,
    Option,
    People,
    amount,
    certificate_text,
    delay_text,
    epsilon_text,
    percent,
)
from whitelie.planning.proposal import Plan
from whitelie.planning.runs import (
    BATCH_SHARE,
    MOST_COMPARED_REPLICATES,
    RECENT_DIVISOR,
    SETTLED_SHARE,
)
from whitelie.planning.times import CONFIDENCE_LEVEL, SURE_SHARE, Chance, Time

TITLE = "What privacy costs"
MOST_RATES_LISTED = 4
"""So many different rates are listed; of more, the smallest and the largest are given."""


def sheet(plan: Plan) -> str:
    """Return the price sheet of a plan as the text of one HTML file."""
    marked = marked_options(plan)
    page = render(
        "planning/sheet.html",
        title=TITLE,
        design=_design(plan.design),
        advice=_advice(plan),
        figures=figures(plan),
        beyond=any(one.option.reached.days_high is None for one in marked),
        left_out=_left_out(marked),
        options=_options(plan, marked),
        comparisons=_comparisons(plan),
        frontier=frontier_page_figure(plan),
        frontier_beyond=plan.frontier is not None
        and any(not point.certified.in_all_runs for point in plan.frontier.points),
        frontier_epsilon="" if plan.frontier is None else epsilon_text(plan.frontier.epsilon),
        gains=_gains(marked),
        theory=None if plan.design.goal.ships else _theory(plan, marked),
        terms=_terms(plan),
        provenance=_provenance(plan),
    )
    return page.replace(" %", "\N{NO-BREAK SPACE}%")


@dataclass(frozen=True)
class Advice:
    """The recommendation in words: the budget, what is recommended, and what if rates differ."""

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
    until = ", until one variant is certified; then that one is" if design.goal.ships else ""
    name = design.policy.plain_name
    name = f"{name[0].upper()}{name[1:]}" if name.islower() else name
    policy = f"{name} ({design.policy.label})"
    return (
        f"{len(rates)} variants {_rates(rates)}. The difference that matters is "
        f"{lead:.3g} {points}. {design.traffic:,.10g} answers are asked for on a day"
        f"{arriving}.{late}{each} {policy} decides what is shown{until}. "
        f"{certificate_text(design)}."
    )


def _rates(rates: Sequence[float]) -> str:
    """Return expected rates in words, largest first.

    >>> _rates([0.06, 0.05, 0.05])
    'with expected rates: one at 6 % and two at 5 %'
    """
    different = list(dict.fromkeys(rates))
    if len(different) > MOST_RATES_LISTED:
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
    recommended = plan.recommendation
    if recommended is None:
        return None
    return Advice(
        budget=_budget(recommended.budget, plan.design),
        met=recommended.met,
        text=str(recommended)[:1].upper() + str(recommended)[1:],
        guesses=tuple(
            (guess.guess, recommended.budget.words(guess.spent), guess.met)
            for guess in recommended.sensitivity
        ),
    )


def _budget(budget: Budget, design: Design) -> str:
    if budget.kind == "lose_at_most":
        return f"lose at most {amount(budget.amount)} rewards in a year"
    if design.goal.ships:
        return f"a certificate within {budget.amount:g} days in {percent(SURE_SHARE)} of runs"
    return f"nearly all traffic goes to the best variant within {budget.amount:g} days"


def _options(plan: Plan, marked: Sequence[Marked]) -> Table:
    columns = [
        "ε",
        "What one report reveals",
        "One noise-free report is worth",
        *(KNOW_COLUMNS if plan.design.goal.ships else EARN_COLUMNS),
    ]
    several = plan.design.reports_per_person > 1
    if several:
        columns.append(f"ε of {plan.design.reports_per_person} reports of one person")
    rows = [_row(one, several=several) for one in marked]
    return Table("", tuple(columns), tuple(rows))


def _row(one: Marked, *, several: bool) -> tuple[str, ...]:
    option = one.option
    cells = [
        f"{one.name}\n{one.mark}" if one.mark else one.name,
        reveals(option.mechanism),
        f"{_figures(option.mechanism.worth)}\nof these",
        *(_know_cells(option) if option.goal == "know" else _earn_cells(option)),
    ]
    return (*cells, _people(option.people)) if several else tuple(cells)


EARN_COLUMNS = (
    "Rewards lost in a year\nmean; 90 % of runs",
    "Until traffic goes to the best\n95 % interval",
    "Days to the certificate\nmean; in 95 % of runs",
    "Chance to end on a wrong variant",
)
KNOW_COLUMNS = (
    "Days to the certificate\nmean; in 95 % of runs",
    "Chance that it is wrong",
    "Rewards lost until then\nstandard error",
    "Lost in a year, winner shipped\nmean; 90 % of runs",
)


def _earn_cells(option: Option) -> list[str]:
    return [
        _lost(option),
        _time(option.settled),
        _certificate_days(option.certified),
        _chance(option.wrong),
    ]


def _know_cells(option: Option) -> list[str]:
    certified = option.certified
    return [
        _certificate_days(certified),
        _chance(certified.wrong),
        f"{amount(certified.lost_until.value)}\n± {amount(certified.lost_until.error)}",
        _lost(option),
    ]


def _lost(option: Option) -> str:
    lost = option.lost
    ends = f"{amount(lost.lucky[-1])} to {amount(lost.unlucky[-1])}"
    return f"{amount(option.lost_rewards)}\n{ends}"


def _certificate_days(certified: Certified) -> str:
    if certified.share.estimate == 0:
        return f"{certified.mean_text} days"
    return f"{certified.mean_text} days\nin 95 %: {certified.within_text} days"


def _comparisons(plan: Plan) -> Table | None:
    """Return policies side by side: by epsilon, the days to the certificate and what is lost."""
    if not plan.comparisons:
        return None
    columns = ("ε", *(f"{policy.name}\n{policy.plain_name}" for policy in plan.comparisons))
    rows = [
        (
            epsilon_text(option.epsilon),
            *(_compared(policy.certified[i]) for policy in plan.comparisons),
        )
        for i, option in enumerate(plan.shown)
    ]
    return Table("", columns, tuple(rows))


def _compared(certified: Certified) -> str:
    return f"{certified.mean_text}\n{amount(certified.lost_in_year.value)} lost"


def reveals(mechanism: Mechanism) -> str:
    r"""Say what one report tells about the person who sent it.

    >>> from whitelie.channel import RandomizedResponse
    >>> print(reveals(Mechanism(RandomizedResponse.from_epsilon(8), 1.0)))
    Truthful with probability 99.966 %
    moves anyone's belief by at most a factor of 2,990
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
    most = DAYS_PER_YEAR * design.traffic * (max(design.rates) - min(design.rates))
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
    settled, sure = percent(SETTLED_SHARE), percent(SURE_SHARE)
    certificate = (
        "Certificate",
        "the statement that one variant is the best, valid however often one looks and whenever "
        "one stops. Its mean time is marked ≥ where a run without certificate counts as a year.",
    )
    shipped = (
        "Winner shipped",
        "from its certificate on, the winner alone is shown; a wrong one goes on losing.",
    )
    side_by_side = (
        "know",
        "how often top-two sampling looks for the variant that is hardest to tell from the leader. "
        "Less of it earns more until the certificate, which comes later.",
    )
    until_settled = (
        "Until traffic goes to the best",
        f"the first time at which in {sure} of simulated runs the best variant had more than "
        f"{settled} of the last {percent(1 / RECENT_DIVISOR)} of reports. Only a simulation can "
        "see this: a running experiment does not know its best variant.",
    )
    wrong = (
        "Wrong variant",
        "the one with most of the last reports of the year is not the best; “at most” is the "
        f"upper end of a {percent(CONFIDENCE_LEVEL)} interval.",
    )
    know = (certificate, shipped, side_by_side)
    earn = (until_settled, certificate, wrong)
    return (
        (
            "ε",
            "how much one report can say about the person who sent it. It multiplies or divides "
            "the odds of whatever anyone believed by at most e to the power ε, the factor in the "
            "table. Smaller is more private. k reports of one person cost k·ε together.",
        ),
        (
            "Rewards lost (regret)",
            "what always showing the best variant would have earned in addition, on all answers "
            "asked for in a year.",
        ),
        *(know if plan.design.goal.ships else earn),
    )


def _provenance(plan: Plan) -> str:
    fewer = min(plan.replicates, MOST_COMPARED_REPLICATES)
    others = f" ({fewer} of what is compared with them)" if plan.design.goal.ships else ""
    return (
        f"Simulated: {plan.replicates:,} runs of a year each{others}, in batches of "
        f"{percent(BATCH_SHARE)} of the reports before; seed {plan.seed}; "
        f"whitelie {version('whitelie')}."
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
