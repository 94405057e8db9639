"""A real survey in which reading randomised answers as the truth picks the wrong question.

Which experience is the most common? One learner takes each "yes" for the truth, the other corrects
for the design. The data and their source are in `whitelie.paper.survey`.

Run: python examples/real_survey.py
"""

import random
from collections import Counter
from collections.abc import Sequence

from whitelie import TS, Bandit, Estimate
from whitelie.paper.survey import ANSWERS, CONTESTED, SURVEY, Question

PULLS = 20_000
LAST = 1_000
SEED = 1


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


def main() -> None:
    """Print the survey, and what the two learners settle on."""
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
    print(f"TS-CF corrects it and settles on {max(corrected, key=corrected.__getitem__)!r}.")


if __name__ == "__main__":
    main()
