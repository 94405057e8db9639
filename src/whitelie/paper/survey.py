"""A real survey in which reading randomised answers as the truth picks the wrong question.

Students of a Spanish university answered six sensitive questions by the unrelated-question design
(Horvitz, Shah and Simmons, 1967; Greenberg and others, 1969): a coin decided between the sensitive
question and an innocuous one whose rate of "yes", alpha, is known.

Source of the data: HorvitzDataRealSurvey in the R package RRTCS (B. Cobo Rodríguez, M. Rueda
García, A. Arcos Cebrián); alpha from its documentation.
"""

from typing import NamedTuple

from whitelie.channel import RandomizedResponse
from whitelie.problem import Problem

ANSWERS = 710


class Question(NamedTuple):
    """A sensitive question: how many of 710 answers were "yes", and the innocuous rate."""

    name: str
    yes: int
    alpha: float

    @property
    def channel(self) -> RandomizedResponse:
        """The survey's design: a coin chooses the sensitive question or the innocuous one."""
        return RandomizedResponse.unrelated(truth=1 / 2, alpha=self.alpha)

    @property
    def corrected(self) -> float:
        """The rate of "yes" to the sensitive question alone, that these answers suggest."""
        return self.channel.mean_reward(self.yes / ANSWERS)


SURVEY = (
    Question("copied in an exam", 328, 1 / 12),
    Question("fought with a teacher", 180, 1 / 10),
    Question("was bullied", 280, 20 / 30),
    Question("bullied someone", 81, 1 / 10),
    Question("took drugs on campus", 164, 10 / 30),
    Question("had sex on the premises", 53, 1 / 12),
)

# "Copied in an exam" comes first with and without correction, so nobody can go wrong on it.
CONTESTED = SURVEY[1:]


def contested_problem() -> Problem:
    """Return the contested questions as arms: a pull asks one respondent, drawn at random."""
    means = {question.name: question.corrected for question in CONTESTED}
    return Problem(means, [question.channel for question in CONTESTED])
