"""Problems: arms by position or by name, with any mix of channels."""

from typing import Any

import pytest

from whitelie import IDENTITY, InvalidInput, Monotone, Problem, RandomizedResponse

NOISY = RandomizedResponse(p00=0.75, p11=0.75)
TURNED = RandomizedResponse(p00=0.25, p11=0.25)
TABLE = Monotone.from_points([(0, 0.2), (0.5, 0.3), (1, 0.9)])


def test_mixed_channels_are_normal() -> None:
    problem = Problem([0.5, 1.0, 0.75, 0.25], [NOISY, TURNED, TABLE, IDENTITY])
    assert problem.names == (0, 1, 2, 3)
    assert problem.best == 1
    assert problem.gaps == (0.5, 0.0, 0.25, 0.75)
    assert problem.feedback_means == pytest.approx((0.5, 0.25, 0.6, 0.25))


def test_arms_by_name() -> None:
    problem = Problem({"a": 0.2, "b": 0.7}, {"b": NOISY, "a": TURNED})
    assert problem.names == ("a", "b")
    assert problem.channels == (TURNED, NOISY)
    assert problem.best == "b"


def test_problems_are_values() -> None:
    assert Problem([0.5, 0.25], NOISY) == Problem((0.5, 0.25), [NOISY, NOISY])
    assert hash(Problem([0.5], NOISY)) == hash(Problem([0.5], NOISY))
    assert Problem([0.5], NOISY) != Problem([0.5], TURNED)
    assert "means=(0.5,)" in repr(Problem([0.5], NOISY))
    mixed = Problem({"a": 0.5, "b": 0.25}, [TURNED, TABLE])
    assert Problem.from_dict(mixed.to_dict()) == mixed


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (([], NOISY), "arms"),
        (([0.5, 1.5], NOISY), "means[1]"),
        (([0.5, float("nan")], NOISY), "means[1]"),
        (({"a": "high"}, NOISY), "means['a']"),
        (([0.5, 0.5], [NOISY]), "channels"),
        (([0.5, 0.5], [NOISY, 0.7]), "channels"),
        ((0.5, NOISY), "means"),
    ],
)
def test_refusals_name_the_field(arguments: tuple[Any, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Problem(*arguments)
    assert refusal.value.field == field
