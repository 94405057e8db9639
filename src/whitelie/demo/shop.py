"""The shop as data: what it may show, and how often people really click."""

from dataclasses import dataclass
from typing import Any

NAME = "Tea shop"
EPSILON = 1.0
WINDOW = 5
SPREAD = 5
"""Seconds, shortened for the demonstration: minutes and hours are usual."""


@dataclass(frozen=True)
class Hero:
    """A variant of the shop's first screen; `rate` is known to the demonstration only."""

    key: str
    rate: float
    title: str
    text: str
    button: str

    @property
    def payload(self) -> dict[str, str]:
        """What the service hands to the page."""
        return {"title": self.title, "text": self.text, "button": self.button}


HEROES = (
    Hero(
        "plain",
        0.30,
        "Green tea, 100 g",
        "Whole leaves from Uji, packed this spring.",
        "Add to basket",
    ),
    Hero(
        "hurry",
        0.15,
        "Only 3 left! Hurry!",
        "This offer ends tonight. Others are looking at it, too.",
        "Buy now",
    ),
    Hero(
        "kind",
        0.55,
        "A quiet cup, whenever you like",
        "Green tea from Uji. Try a small bag first, and send it back if it is not for you.",
        "Try a small bag",
    ),
)


def experiment() -> dict[str, Any]:
    """Return the body of the request that creates the experiment."""
    return {
        "name": NAME,
        "arms": [{"key": hero.key, "payload": hero.payload} for hero in HEROES],
        "epsilon": EPSILON,
        "window": WINDOW,
        "sending": "when-due",
        "spread": SPREAD,
    }
