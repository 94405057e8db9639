"""What all policies share: names, tuning, plain data, and how they are run.

A policy is a value that selects a compiled rule and how that rule reads feedback:

- *corrected*: through the inverse of the arm's channel (the paper's -CF algorithms).
- *naive*: as if feedback were the reward.
- *wrapped*: the paper's WRAPPER. The inverse channel's values of the two bits, rescaled to [0, 1]
  by one affine map common to all arms, are taken for rewards.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, Self

import numpy as np

from whitelie.channel import AnyChannel, RandomizedResponse
from whitelie.errors import InvalidInput, real_number
from whitelie.kernel.arms import Arms, Array, pack
from whitelie.kernel.cell_game import CellGame, cumulative_thresholds, run_cells
from whitelie.kernel.cells import Cells, cell_probabilities, has_cells, pack_cells
from whitelie.kernel.choice import decide
from whitelie.kernel.game import Game, thresholds
from whitelie.kernel.plain import run_plain
from whitelie.kernel.rule import Rule, declaration_of
from whitelie.problem import Problem

Feedback = Literal["corrected", "naive", "wrapped"]

Kernel = Callable[[Any, np.uint64, int, Array], Array]
"""(game, seed, replicate, checkpoints) -> pulls, by checkpoint (row) and arm (column)."""

Decide = Callable[..., None]
"""(rule, arms, state, key, number, chosen): fills `chosen` with decisions from `number` on."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A policy: a title for each way of reading feedback, what it is called in plain words.

    A policy of one's own overrides `rule`. The others say where it can run, and how it runs faster.
    """

    titles: ClassVar[Mapping[str, str]]
    plain_name: ClassVar[str]

    feedback: str

    def __post_init__(self) -> None:
        check_choice("feedback", self.feedback, tuple(self.titles))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Return the tunings that tests try, the default first: every way of reading feedback."""
        return tuple(cls(feedback=feedback) for feedback in cls.titles)

    @property
    def label(self) -> str:
        """The name for legends, followed by whatever tuning is not the default."""
        tuned = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if field.name != "feedback" and getattr(self, field.name) != field.default
        ]
        title = self.titles[self.feedback]
        return f"{title} ({', '.join(tuned)})" if tuned else title

    @property
    def rule(self) -> Rule:
        """The compiled rule with its tuning."""
        raise NotImplementedError(f"{type(self).__name__} has no rule")

    @property
    def runs_live(self) -> bool:
        """Whether it chooses from what people report, so that it can run outside the simulator."""
        return True

    @property
    def memory(self) -> int:
        """How many numbers per arm it keeps beyond the counts of feedback."""
        return declaration_of(self.rule).memory

    @property
    def counts_feedback(self) -> bool:
        """Whether the choice depends on the counts of feedback alone: the service keeps no more."""
        return self.runs_live and self.memory == 0

    @property
    def no_plan_because(self) -> str | None:
        """Why no plan is made with this policy; None if one is."""
        if self.feedback == "wrapped":
            return "feedback must be corrected or naive"
        if not self.counts_feedback:
            return f"{self.label} keeps more than counts of feedback"
        return None

    def check_channels(self, channels: Sequence[AnyChannel]) -> None:
        """Refuse channels with which this policy has no meaning."""
        if self.feedback != "corrected" and has_cells(channels):
            reason = (
                f"{self.label} takes a report for a reward, and these channels have other reports"
            )
            raise InvalidInput("channels", channels, f"{reason}: choose corrected feedback")
        if has_cells(channels) and self.memory:
            reason = f"{self.label} remembers bits, and these channels report more than a bit"
            raise InvalidInput("channels", channels, reason)
        if self.feedback == "wrapped":
            for channel in channels:
                if not isinstance(channel, RandomizedResponse):
                    raise InvalidInput(
                        "channels",
                        channel,
                        f"{self.label} needs affine channels: the mean of inverted feedback is not "
                        "the inverse of mean feedback on a tabulated one",
                    )

    def pack(self, channels: Sequence[AnyChannel], active: Array | None = None) -> Arms:
        """Return arms of bits as this policy reads them; WRAPPER's scale spans the active ones."""
        self.check_channels(channels)
        return pack(self.feedback, channels, active)

    def read(self, channels: Sequence[AnyChannel], active: Array | None = None) -> Arms | Cells:
        """Return the arms as this policy reads them, in cells where reports are more than bits."""
        if not has_cells(channels):
            return self.pack(channels, active)
        self.check_channels(channels)
        return pack_cells(channels)

    def game(self, problem: Problem, horizon: int) -> Any:
        """Return what a replicate plays up to the horizon."""
        arms = self.read(problem.channels)
        if isinstance(arms, Cells):
            probabilities = np.array(cell_probabilities(problem.channels, problem.means))
            return CellGame(self.rule, arms, cumulative_thresholds(probabilities))
        return Game(self.rule, arms, thresholds(np.array(problem.feedback_means)))

    def kernel(self, game: Any, *, plain: bool = False) -> Kernel:
        """Return the loop that runs a replicate: the fast one on affine channels, if there is."""
        if isinstance(game, CellGame):
            return run_cells if plain else self.cell_kernel
        tabulated = len(game.arms.table_x) > 0
        return run_plain if plain or tabulated else self.fast_kernel

    @property
    def fast_kernel(self) -> Kernel:
        """The loop for affine channels; the plain one unless a faster one has been written."""
        return run_plain

    @property
    def cell_kernel(self) -> Kernel:
        """The loop for reports in cells; the plain one unless a faster one has been written."""
        return run_cells

    def live_kernel(self, count: int) -> Decide:
        """Return what takes so many decisions on the same counts."""
        return decide

    def to_dict(self) -> dict[str, Any]:
        """Return plain data from which `policy_from_dict` makes an equal policy."""
        return {"name": type(self).__name__, **asdict(self)}


def check_choice(field: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Refuse a tuning that is not among the choices."""
    if value not in choices:
        raise InvalidInput(field, value, "choose one of " + ", ".join(map(repr, choices)))


def check_exploration(c: Any) -> None:
    """Refuse a weight of ln ln t with which f(t) has no meaning."""
    real_number("c", c, "the weight of ln ln t is a number from 0 to 10^6", least=0, most=1e6)
