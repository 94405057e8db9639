"""Any continuous, strictly monotone mean-corruption function, as a table."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, ClassVar, Self

from whitelie.errors import InvalidInput, real_number

GRID_INTERVALS = 2**16


class Monotone:
    """The piecewise-linear channel through g(0), g(1/65536), …, g(1).

    From construction on the table *is* the channel: it is compared, stored and compiled. Where g
    is steeper than the grid resolves, give your own points with `from_points`.
    A general g maps means only, so it has no slope, no epsilon and no coin.

    >>> quadratic = Monotone(lambda mu: 0.1 + 0.8 * mu**2)
    >>> round(quadratic.mean_feedback(0.5), 6), round(quadratic.mean_reward(0.3), 6)
    (0.3, 0.5)
    >>> quadratic.mean_reward(0.95)  # no mean reward gives this feedback: the nearest end
    1.0
    """

    kind: ClassVar[str] = "monotone"

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    increasing: bool

    __slots__ = ("increasing", "xs", "ys")

    def __init__(self, g: Callable[[float], float]) -> None:
        if not callable(g):
            raise InvalidInput("g", g, "give a function, or use Monotone.from_points")
        grid = [i / GRID_INTERVALS for i in range(GRID_INTERVALS + 1)]
        self._fill([(x, g(x)) for x in grid])

    @classmethod
    def from_points(cls, points: Iterable[tuple[float, float]]) -> Self:
        """Return the channel through the points (mean reward, mean feedback), in any order.

        >>> Monotone.from_points([(0, 0.9), (0.5, 0.3), (1, 0.2)])
        Monotone(3 points, decreasing from 0.9 to 0.2)
        """
        try:
            pairs = [(x, y) for x, y in points]
        except (TypeError, ValueError):
            raise InvalidInput("points", points, "give pairs (mean reward, feedback)") from None
        channel = cls.__new__(cls)
        channel._fill(pairs)
        return channel

    def _fill(self, points: list[tuple[Any, Any]]) -> None:
        reason = "a mean reward lies in [0, 1]"
        pairs = sorted(
            (real_number("points", x, reason, least=0, most=1), _mean_feedback(x, y))
            for x, y in points
        )
        xs, ys = tuple(x for x, _ in pairs), tuple(y for _, y in pairs)
        if len(xs) < 2 or xs[0] != 0 or xs[-1] != 1:
            reason = "the mean rewards must reach from exactly 0 to exactly 1"
            raise InvalidInput("points", xs, reason)
        if ys[0] == ys[-1]:
            raise InvalidInput("g", ys[0], "g must be strictly monotone, but g(0) equals g(1)")
        increasing = ys[0] < ys[-1]
        for (x0, x1), (y0, y1) in zip(pairwise(xs), pairwise(ys), strict=True):
            if x0 == x1:
                raise InvalidInput("points", x1, "two points have this mean reward")
            if y0 == y1 or (y0 < y1) != increasing:
                way = "increasing" if increasing else "decreasing"
                raise InvalidInput(
                    "g",
                    (y0, y1),
                    f"g must be strictly monotone; overall it is {way}, "
                    f"but not between {x0:.6g} and {x1:.6g}",
                )
        for name, value in (("xs", xs), ("ys", ys), ("increasing", increasing)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a channel is a value and does not change")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Monotone):
            return NotImplemented
        return self.xs == other.xs and self.ys == other.ys

    def __hash__(self) -> int:
        return hash((self.xs, self.ys))

    def __repr__(self) -> str:
        way = "increasing" if self.increasing else "decreasing"
        return f"Monotone({len(self.xs)} points, {way} from {self.ys[0]:.6g} to {self.ys[-1]:.6g})"

    def __deepcopy__(self, memo: Any) -> Self:
        """A value that does not change is its own copy."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_points, (list(zip(self.xs, self.ys, strict=True)),)

    def mean_feedback(self, mu: float) -> float:
        """Return g(mu) for a mean reward in [0, 1]."""
        if not 0 <= mu <= 1:
            raise InvalidInput("mu", mu, "a tabulated channel is defined on [0, 1] only")
        right = min(bisect_right(self.xs, mu), len(self.xs) - 1)
        return _between(mu, self.xs, self.ys, right)

    def mean_reward(self, lam: float) -> float:
        """Return the inverse of g at lam, or the nearest end where g([0, 1]) does not reach lam."""
        sign = 1 if self.increasing else -1
        right = bisect_left(self.ys, sign * lam, key=lambda y: sign * y)
        if right == 0:
            return 0.0
        if right == len(self.ys):
            return 1.0
        return _between(lam, self.ys, self.xs, right)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data from which `channel_from_dict` makes an equal channel."""
        return {"kind": self.kind, "xs": list(self.xs), "ys": list(self.ys)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the channel that `to_dict` described."""
        return cls.from_points(zip(data["xs"], data["ys"], strict=True))


def _mean_feedback(x: Any, y: Any) -> float:
    reason = f"g({x}) is not a mean of binary feedback, in [0, 1]"
    return real_number("g", y, reason, least=0, most=1)


def _between(
    at: float, sources: tuple[float, ...], targets: tuple[float, ...], right: int
) -> float:
    """Interpolate linearly on the segment that ends at index `right`."""
    s0, s1 = sources[right - 1], sources[right]
    t0, t1 = targets[right - 1], targets[right]
    share = (at - s0) / (s1 - s0)
    return (1 - share) * t0 + share * t1
