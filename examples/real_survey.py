"""A real survey in which reading randomised answers as the truth picks the wrong question.

Students of a Spanish university answered six sensitive questions by the unrelated-question design
(Horvitz, Shah and Simmons, 1967; Greenberg and others, 1969): a coin decided between the sensitive
question and an innocuous one whose rate of "yes", alpha, is known. Which experience is the most
common? One learner takes each "yes" for the truth, the other corrects for the design.

Source of the data: HorvitzDataRealSurvey in the R package RRTCS (B. Cobo Rodríguez, M. Rueda
García, A. Arcos Cebrián); alpha from its documentation.

Run: python examples/real_survey.py
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from whitelie import TS, Bandit, Estimate, Problem, RandomizedResponse, bounds

ANSWERS = 710
PULLS = 20_000
LAST = 1_000
SEED = 1


class Question(NamedTuple):
    """A sensitive question: how many of 710 answers were "yes", and the innocuous rate."""

    name: str
    yes: int
    alpha: float

    @property
    def channel(self) -> RandomizedResponse:
        """The survey's design: a coin chooses the sensitive question or the innocuous one."""
        return RandomizedResponse.unrelated(truth=1 / 2, alpha=self.alpha)


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


def whole_survey(questions: Sequence[Question] = SURVEY) -> dict[str, Estimate]:
    """Return what all 710 answers say of each question, corrected for the design."""
    bandit = Bandit(
        [question.name for question in questions],
        [question.channel for question in questions],
        counts={question.name: (ANSWERS, question.yes) for question in questions},
    )
    return {str(name): estimate for name, estimate in bandit.estimates().items()}


def ask(policy: TS, pulls: int = PULLS, seed: int = SEED) -> list[str]:
    """Return the questions that the policy chose to ask; each goes to a respondent at random."""
    yes = {question.name: question.yes for question in CONTESTED}
    channels = {question.name: question.channel for question in CONTESTED}
    bandit = Bandit(list(yes), channels, policy, seed=seed)
    respondents = random.Random(seed)
    asked = []
    for _ in range(pulls):
        name = bandit.choose()
        bandit.update(name, int(respondents.randrange(ANSWERS) < yes[name]))
        asked.append(name)
    return asked


def shares(asked: Sequence[str], last: int = LAST) -> dict[str, float]:
    """Return each contested question's share of the last choices."""
    counts = Counter(asked[-last:])
    return {question.name: counts[question.name] / last for question in CONTESTED}


def first_experiment() -> Problem:
    """Return the problem of the paper's first experiment, where the best arm lies the most."""
    noisy, clear = RandomizedResponse.warner(0.6), RandomizedResponse.warner(0.9)
    return Problem([0.9] + [0.8] * 9, [noisy] + [clear] * 9)


def main() -> None:
    """Print the survey, what the two learners settle on, and the paper's lower bound."""
    naive, corrected = shares(ask(TS(feedback="naive"))), shares(ask(TS()))
    print(f"{ANSWERS} randomised answers to each question; {PULLS:,} choices by each learner.\n")
    print(f"{'':24}{'answers':>8}{'corrected for the design':>26}{'last 1,000 choices':>21}")
    print(f"{'question':24}{'yes':>8}{'yes':>9}{'95 % interval':>17}{'TS':>10}{'TS-CF':>11}")
    print("-" * 79)
    for name, known in whole_survey().items():
        interval = f"[{known.lower:.3f}, {known.upper:.3f}]"
        if name in naive:
            choices = f"{naive[name]:>10.1%}{corrected[name]:>11.1%}"
        else:
            choices = f"{'left out':>21}"
        print(f"{name:24}{known.rate:>8.3f}{known.estimate:>9.3f}{interval:>17}{choices}")
    print("-" * 79)
    print(f"TS takes an answer for the truth and settles on {max(naive, key=naive.__getitem__)!r};")
    print(f"TS-CF corrects it and settles on {max(corrected, key=corrected.__getitem__)!r}.\n")
    least = bounds.lower_bound(first_experiment(), 100_000)
    print(f"The paper's first experiment, lower bound on regret at T = 100,000: {least:.2f}")


if __name__ == "__main__":
    main()
