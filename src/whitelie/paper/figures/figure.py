"""The title and caption of each figure, and how it is drawn, saved and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from whitelie.page import PageFigure
from whitelie.paper import experiments, runs
from whitelie.paper.claims import Finding
from whitelie.paper.experiments import SCENARIOS, Scenario
from whitelie.paper.figures import diagrams, panels
from whitelie.paper.report import tables
from whitelie.paper.report.tables import Entry, final_regrets
from whitelie.paper.runs import Scale, StoredRuns, scenario_of
from whitelie.paper.statements import examine

TITLES = {
    "uninformative": "An uninformative corruption function",
    "informative": "Informative corruption functions",
    "index": "The kl index without and with corruption",
    "optimality": "Asymptotic optimality",
    "exploration": "c = 0 beside c = 3",
    "survey": "A real survey",
}

CAPTIONS = {
    "a": "Regret over time when the best arm's feedback is the noisiest (p₀₀ = p₁₁ = .6, the other "
    "arms' .9). Solid lines correct for the noise, dotted ones wrap, dashed ones ignore it. The "
    "curves marked † are ours: the paper's figures do not have them. Theorem 1 is asymptotic, and "
    "curves below it are no contradiction.",
    "b": "Regret at the horizon against the privacy of a report, with Corollary 3 as printed and "
    "with the constant that Pinsker's inequality gives. Uniform play is what never learning costs.",
    "c": "Local privacy (each report has ε = 1) beside global privacy (DP-UCB-INT sees the true "
    "rewards). Each label states the true total guarantee of what is published.",
    "uninformative": "Arm a and the best arm give the same mean feedback through gₐ, λₐ = gₐ(μ₁): "
    "no number of answers tells whether arm a is as good as the best.",
    "informative": "A steep monotone gₐ turns the gap of rewards into a clear gap between λₐ and "
    "gₐ(μ₁). That λₐ equals λ₁ here is a coincidence and does no harm: g₁ reads it differently.",
    "index": "kl-UCB's index is the largest mean that the data do not contradict within the budget "
    "f(t)/N. kl-UCB-CF finds that end on the scale of feedback and reads it back through g.",
    "optimality": "Beyond the paper: regret divided by ln t in scenario 4 at ε = 2, for a hundred "
    "times the horizon of the panels. An optimal policy tends to Theorem 1's constant.",
    "exploration": "Beyond the paper: the exploration of Theorem 2, f(t) = ln t + 3·ln ln t, "
    "beside ln t alone (hollow marks), which is common in practice, in the setting of panels a.",
    "survey": "Beyond the paper: five sensitive questions, each with its own randomising design, "
    "resampled from the 710 answers to each. The share of choices that go to the question whose "
    "rate of yeses, corrected for the design, is the largest.",
}


@dataclass(frozen=True)
class CheckedFigure:
    """A figure for the page, what its numbers say of the paper's statements, and those numbers."""

    shown: PageFigure
    findings: Mapping[str, Finding]
    entries: Sequence[Entry]


@dataclass(frozen=True)
class FigureMaker:
    """Draws figures into a folder, from runs that have been simulated."""

    stored: StoredRuns
    scale: Scale
    folder: Path

    def make(self, name: str) -> CheckedFigure:
        """Draw a figure, save it, and examine its numbers."""
        if name in experiments.DIAGRAMS:
            return CheckedFigure(self._save(name, getattr(diagrams, name)()), {}, [])
        if name in experiments.PANELS:
            return self._panel(name, scenario_of(name))
        if name == "exploration":
            return self._exploration()
        result = self.stored.result(getattr(runs, name)(self.scale))
        shown = self._save(name, getattr(panels, name)(result))
        entries = tables.long_run(result) if name == "optimality" else tables.survey(result)
        return CheckedFigure(shown, examine(name, result), entries)

    def _panel(self, name: str, scenario: Scenario) -> CheckedFigure:
        if name.endswith("a"):
            result = self.stored.result(runs.over_time(scenario, self.scale))
            table, figure = tables.OVER_TIME, panels.over_time(result, scenario)
        elif name.endswith("b"):
            result = self.stored.against_epsilon(scenario)
            table, figure = tables.AGAINST_EPSILON, panels.against_epsilon(result, scenario)
        else:
            result = self.stored.result(runs.local_and_global(scenario, self.scale))
            table, figure = tables.LOCAL_AND_GLOBAL, panels.local_and_global(result, scenario)
        entries = final_regrets(table, scenario.title, result)
        return CheckedFigure(self._save(name, figure), examine(name, result), entries)

    def _exploration(self) -> CheckedFigure:
        results = {
            scenario.title: self.stored.result(runs.exploration(scenario, self.scale))
            for scenario in SCENARIOS
        }
        entries = [
            entry
            for title, result in results.items()
            for entry in final_regrets(tables.EXPLORATION, title, result)
        ]
        return CheckedFigure(self._save("exploration", panels.exploration(results)), {}, entries)

    def _save(self, name: str, figure: Figure) -> PageFigure:
        panels.save(figure, self.folder, name)
        svg = (self.folder / f"{name}.svg").read_bytes()
        title, caption = title_of(name), CAPTIONS[name[-1] if name in experiments.PANELS else name]
        return PageFigure(name, title, caption, f"{title}. {caption}", svg)


def title_of(name: str) -> str:
    """Return the title of a figure.

    >>> title_of("2b")
    '2b. Scenario 1: regret against ε'
    """
    if name not in experiments.PANELS:
        return TITLES[name]
    axes = {"a": "regret over time", "b": "regret against ε", "c": "local and global privacy"}
    return f"{name}. {scenario_of(name).title}: {axes[name[-1]]}"
