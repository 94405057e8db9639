"""What each picture is called, what it says, and how it is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from whitelie.page import Picture
from whitelie.paper import figures, illustrations, runs, settings, tables
from whitelie.paper.claims import Finding
from whitelie.paper.runs import Runs, Scale, scenario_of
from whitelie.paper.settings import SCENARIOS, Scenario
from whitelie.paper.statements import examine
from whitelie.paper.tables import Entry, final_regrets

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
class Sight:
    """A picture, what its numbers say of the paper's statements, and those numbers."""

    picture: Picture
    findings: Mapping[str, Finding]
    entries: Sequence[Entry]


@dataclass(frozen=True)
class Album:
    """Draws pictures from filled runs into a folder."""

    kept: Runs
    scale: Scale
    folder: Path

    def make(self, name: str) -> Sight:
        """Draw a picture, save it, and examine its numbers."""
        if name in settings.ILLUSTRATIONS:
            return Sight(self._save(name, getattr(illustrations, name)()), {}, [])
        if name in settings.PANELS:
            return self._panel(name, scenario_of(name))
        if name == "exploration":
            return self._exploration()
        result = self.kept.result(getattr(runs, name)(self.scale))
        picture = self._save(name, getattr(figures, name)(result))
        entries = tables.long_run(result) if name == "optimality" else tables.survey(result)
        return Sight(picture, examine(name, result), entries)

    def _panel(self, name: str, scenario: Scenario) -> Sight:
        if name.endswith("a"):
            result = self.kept.result(runs.over_time(scenario, self.scale))
            table, figure = tables.OVER_TIME, figures.over_time(result, scenario)
        elif name.endswith("b"):
            result = self.kept.against_epsilon(scenario)
            table, figure = tables.AGAINST_EPSILON, figures.against_epsilon(result, scenario)
        else:
            result = self.kept.result(runs.local_and_global(scenario, self.scale))
            table, figure = tables.LOCAL_AND_GLOBAL, figures.local_and_global(result, scenario)
        entries = final_regrets(table, scenario.title, result)
        return Sight(self._save(name, figure), examine(name, result), entries)

    def _exploration(self) -> Sight:
        results = {
            scenario.title: self.kept.result(runs.exploration(scenario, self.scale))
            for scenario in SCENARIOS
        }
        entries = [
            entry
            for title, result in results.items()
            for entry in final_regrets(tables.EXPLORATION, title, result)
        ]
        return Sight(self._save("exploration", figures.exploration(results)), {}, entries)

    def _save(self, name: str, figure: Figure) -> Picture:
        figures.save(figure, self.folder, name)
        svg = (self.folder / f"{name}.svg").read_bytes()
        title, caption = title_of(name), CAPTIONS[name[-1] if name in settings.PANELS else name]
        return Picture(name, title, caption, f"{title}. {caption}", svg)


def title_of(name: str) -> str:
    """Return the title of a picture.

    >>> title_of("2b")
    '2b. Scenario 1: regret against ε'
    """
    if name not in settings.PANELS:
        return TITLES[name]
    shown = {"a": "regret over time", "b": "regret against ε", "c": "local and global privacy"}
    return f"{name}. {scenario_of(name).title}: {shown[name[-1]]}"
