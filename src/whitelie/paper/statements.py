"""What the paper says of its experiments, and the check of each statement."""

from collections.abc import Iterable, Mapping

from whitelie.paper import experiments, measures
from whitelie.paper.claims import Check, Claim, Finding
from whitelie.simulation.result import Result


def examine(figure: str, result: Result) -> dict[str, Finding]:
    """Return what a figure's result says of each statement that rests on it, by its id."""
    return {each.id: each.examine(figure, result) for each in CHECKS if figure in each.figures}


def conclude(examined: Iterable[Mapping[str, Finding]]) -> list[Claim]:
    """Return the verdict on every statement that rests on an examined figure."""
    every = list(examined)
    claims = []
    for check in CHECKS:
        findings = [findings[check.id] for findings in every if check.id in findings]
        if findings:
            claims.append(check.conclude(findings))
    return claims


def _panels(letter: str) -> tuple[str, ...]:
    return tuple(f"{scenario.figure}{letter}" for scenario in experiments.SCENARIOS)


CHECKS = (
    Check(
        id="naive-linear",
        where="section 6.1",
        says="Traditional bandit algorithms are unable to solve the corrupt bandit problem.",
        figures=_panels("a"),
        rule="R(T)/R(T/10) of naive kl-UCB, UCB1 and TS is at least "
        f"{measures.LEAST_LINEAR_GROWTH:g}: linear regret",
        measure=measures.linear_growth,
        why={
            "reproduced": "Naive policies settle on arms that look best through the noise. In "
            "scenario 1 the two arms look exactly alike (mean feedback .58), and they choose "
            "blindly.",
            "reproduced with a caveat": "Naive policies settle on arms that look best through the "
            "noise; see the exceptions.",
            "not reproduced": "This does not show linear regret.",
        },
    ),
    Check(
        id="corrected-logarithmic",
        where="Theorems 2 and 3, Corollary 1, seen in section 6.1",
        says="The regret of kl-UCB-CF, UCB-CF and TS-CF is logarithmic.",
        figures=_panels("a"),
        rule="the last decade of time adds at most "
        f"{measures.MOST_LOGARITHMIC_GROWTH:g} times what the decade before added "
        "(linear regret adds 10 times)",
        measure=measures.logarithmic_growth,
        why={
            "reproduced": "Each decade of time adds about as much as the one before, or less.",
            "reproduced with a caveat": "Linear regret would add 10 times, √T 3.2 times: within "
            "this horizon the exceptions cannot be told from √T. kl-UCB-CF and UCB-CF first pull "
            "the noisiest arm, which is the best, and so begin to lose late; the long run below "
            "shows the logarithm.",
            "not reproduced": "This does not show logarithmic regret.",
        },
    ),
    Check(
        id="wrapper-worse",
        where="section 6",
        says="WRAPPER performs worse than the proposed algorithms, even with linear corruption.",
        figures=_panels("a"),
        rule="at T, WR's regret minus that of the corrected policy of the same rule is above 0",
        measure=measures.wrapped_excess,
        why={
            "reproduced": "WRAPPER finds the best arm, but pays for treating the wide range of "
            "inverted bits as if it were a reward's own.",
            "reproduced with a caveat": "Mostly so; see the exceptions.",
            "not reproduced": "This does not show WRAPPER to be worse.",
        },
    ),
    Check(
        id="naive-worse",
        where="section 6.1",
        says="The proposed algorithms have lower regret than algorithms that ignore corruption.",
        figures=_panels("a"),
        rule="at T, naive regret minus that of the corrected policy of the same rule is above 0",
        measure=measures.naive_excess,
        why={
            "reproduced": "Ignoring the corruption costs more than correcting for it, for every "
            "rule on every problem.",
            "reproduced with a caveat": "Mostly so; see the exceptions.",
            "not reproduced": "This does not show naive policies to be worse.",
        },
    ),
    Check(
        id="superiority-grows",
        where="section 6.1",
        says="The superiority of the proposed algorithms is more pronounced as time increases.",
        figures=_panels("a"),
        rule="those differences are larger at T than at T/10",
        measure=measures.widening,
        why={
            "reproduced": "All differences are still growing at T.",
            "reproduced with a caveat": "Most differences are still growing at T; see the "
            "exceptions.",
            "not reproduced": "This does not show growing differences.",
        },
    ),
    Check(
        id="falls-with-epsilon",
        where="section 6.2",
        says="The regret of kl-UCB-CF and TS-CF decreases with increasing ε.",
        figures=_panels("b"),
        rule="regret at each ε minus regret at the next larger one is above 0",
        measure=measures.fall,
        why={
            "reproduced": "At every step, for both policies.",
            "reproduced with a caveat": "Mostly so; where a step is open, the interval is wider "
            "than the step.",
            "not reproduced": "This does not show a fall.",
        },
    ),
    Check(
        id="plateau-low",
        where="section 6.2",
        says="For ε < 1/4 the regret tends to plateau, as a change in ε changes privacy little.",
        figures=_panels("b"),
        rule="from ε = 1/8 to 1/4 regret falls with a power of 1/ε below "
        f"{measures.MOST_PLATEAU_POWER:g} (theory: 2); regret above "
        f"{measures.SATURATED_SHARE:.0%} of uniform play's is the horizon's and does not count",
        measure=measures.low_plateau,
        why={
            "reproduced": "Regret is flat at small ε, away from what the horizon allows.",
            "reproduced with a caveat": "Regret is flat at small ε in most cases, away from what "
            "the horizon allows.",
            "not reproduced": "Regret goes on falling with ε, as the constant of ln T grows like "
            "1/ε². Where it is flat, policies still play almost uniformly at T and cannot lose "
            "more (marked –): that is the horizon, not privacy.",
        },
    ),
    Check(
        id="plateau-high",
        where="section 6.2",
        says="For ε > 4 the regret tends to plateau.",
        figures=_panels("b"),
        rule="from ε = 4 to 8 regret falls with a power of 1/ε below "
        f"{measures.MOST_PLATEAU_POWER:g}",
        measure=measures.high_plateau,
        why={
            "reproduced": "This plateau is real: at ε = 4 an answer is truthful with probability "
            ".982, and more truth can hardly help.",
            "reproduced with a caveat": "Mostly so; see the exceptions.",
            "not reproduced": "This does not show a plateau.",
        },
    ),
    Check(
        id="below-printed-bound",
        where="section 6.2, Corollary 3",
        says="The regret lies below the upper bound UB (2·ln T/(Δ·slope²), as printed).",
        figures=_panels("b"),
        rule="regret over the bound is below 1; a bound above Δ·T, what the worst arm alone would "
        "cost, does not count",
        measure=measures.share_of_bound("printed"),
        why={
            "reproduced": "At small ε the printed bound can exceed what any policy can lose, and "
            "says nothing there (marked –).",
            "reproduced with a caveat": "Mostly so; see the exceptions.",
            "not reproduced": "This does not show regret below the bound.",
        },
    ),
    Check(
        id="below-tight-bound",
        where="whitelie's reading of Corollary 3",
        says="The regret lies below ln T/(2·Δ·slope²), what Pinsker's inequality gives.",
        figures=_panels("b"),
        rule="as for the printed bound",
        measure=measures.share_of_bound("tight"),
        why={
            "reproduced": "The leading term alone is above the measured regret.",
            "reproduced with a caveat": "The leading term leaves out terms of lower order, of "
            "which kl-UCB-CF has a large one, 3·ln ln T.",
            "not reproduced": "This does not show regret below the leading term.",
        },
        ours=True,
    ),
    Check(
        id="global-lower",
        where="section 6.3",
        says="Lower regret for achieving global privacy is to be expected.",
        figures=_panels("c"),
        rule="at T, regret of kl-UCB-CF and TS-CF at ε = 1 minus that of DP-UCB-INT with input "
        "ε = 1 is above 0",
        measure=measures.local_excess("DP-UCB-INT"),
        why={
            "reproduced": "DP-UCB-INT, which sees true rewards, loses less.",
            "reproduced with a caveat": "DP-UCB-INT, which sees true rewards, loses less in most "
            "comparisons.",
            "not reproduced": "DP-UCB-INT sees true rewards, yet now and then its noise hides the "
            "best arm for a whole run. And its true guarantee is far weaker than its input ε = 1 "
            "suggests: see the labels.",
        },
    ),
    Check(
        id="global-calibrated-lower",
        where="whitelie's reading of section 6.3",
        says="DP-UCB-INT, calibrated so that its total is ε = 1, has lower regret.",
        figures=_panels("c"),
        rule="as for DP-UCB-INT as published",
        measure=measures.local_excess("DP-UCB-INT, calibrated"),
        why={
            "reproduced": "Seeing true rewards pays.",
            "reproduced with a caveat": "Seeing true rewards pays in most comparisons.",
            "not reproduced": "Seeing true rewards does not make up for releasing an index so "
            "seldom: see which local algorithm loses more, and where.",
        },
        ours=True,
    ),
    Check(
        id="optimality",
        where="Theorems 1, 2 and 3",
        says="kl-UCB-CF and TS-CF are asymptotically optimal: R(T)/ln T tends to Theorem 1's "
        "constant.",
        figures=("optimality",),
        rule="the slope against ln T over the last decade, divided by the constant, lies within "
        f"{measures.OPTIMAL_TOLERANCE:.0%} of 1",
        measure=measures.slope,
        why={
            "reproduced": "The slope has come near the constant.",
            "reproduced with a caveat": "The slope comes near the constant; with Theorem 2's c = 3 "
            "the term c·ln ln T vanishes slowly against ln T.",
            "not reproduced": "The slope is not within that distance yet. With Theorem 2's c = 3 "
            "the term c·ln ln T vanishes slowly against ln T; c = 0 and TS-CF are in the table.",
        },
    ),
)
