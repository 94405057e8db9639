"""The reproduction in a minute: a few sentences, made from the numbers."""

from collections.abc import Sequence

from whitelie.page import Table
from whitelie.paper import experiments
from whitelie.paper.claims import Claim
from whitelie.paper.report import tables


def sentences(claims: Sequence[Claim], numbers: Sequence[Table]) -> tuple[str, ...]:
    """Return what a busy reader should know, as far as its figures were made."""
    by_title = {table.title: table for table in numbers}
    summary = [_verdicts(claims)] if claims else []
    main = experiments.SCENARIOS[0].title
    if main in _columns(by_title, tables.OVER_TIME):
        regret = _column(by_title[tables.OVER_TIME], main)
        summary.append(
            "On the main problem, where the best arm's feedback is the noisiest, regret is "
            f"{regret['kl-UCB-CF']} (kl-UCB-CF) and {regret['TS-CF']} (TS-CF) for learners that "
            f"correct for the noise, {regret['WR(kl-UCB)']} and {regret['WR(TS)']} when they are "
            f"wrapped, {regret['kl-UCB']} and {regret['TS']} when the noise is ignored."
        )
    if main in _columns(by_title, tables.AGAINST_EPSILON):
        regret = _column(by_title[tables.AGAINST_EPSILON], main)
        summary.append(
            "The price of privacy: on the main problem TS-CF loses "
            f"{regret['TS-CF, ε = 8']} at ε = 8, {regret['TS-CF, ε = 1']} at ε = 1 and "
            f"{regret['TS-CF, ε = 1/8']} at ε = 1/8."
        )
    if main in _columns(by_title, tables.LOCAL_AND_GLOBAL):
        regret = _column(by_title[tables.LOCAL_AND_GLOBAL], main)
        summary.append(
            "Local or global privacy: at ε = 1 DP-UCB-INT, which sees the true rewards, loses "
            f"{regret['DP-UCB-INT']} with this input and {regret['DP-UCB-INT, calibrated']} "
            f"calibrated to this total; kl-UCB-CF loses {regret['kl-UCB-CF']} and TS-CF "
            f"{regret['TS-CF']}."
        )
    if tables.OPTIMALITY in by_title:
        slope = _column(by_title[tables.OPTIMALITY], "slope")
        summary.append(
            "Run a hundred times longer, regret grows per unit of ln T by "
            f"{slope['kl-UCB-CF']} (kl-UCB-CF) and {slope['TS-CF']} (TS-CF) times the least "
            "that is possible."
        )
    if tables.SURVEY in by_title:
        share = _column(by_title[tables.SURVEY], "right question")
        summary.append(
            f"Resampling a real survey, TS-CF gives {share['TS-CF']} of its choices to the right "
            f"question, and TS, which takes answers for the truth, {share['TS']}."
        )
    return tuple(summary)


def _verdicts(claims: Sequence[Claim]) -> str:
    papers = [claim for claim in claims if not claim.ours]
    verdicts = [claim.verdict for claim in papers]
    failed = [claim.says for claim in papers if claim.verdict == "not reproduced"]
    counted = (
        f"Of {len(papers)} statements of the paper {verdicts.count('reproduced')} are reproduced, "
        f"{verdicts.count('reproduced with a caveat')} with a caveat, and {len(failed)} not"
    )
    return f"{counted}: {' '.join(f'“{says}”' for says in failed)}" if failed else f"{counted}."


def _columns(by_title: dict[str, Table], title: str) -> tuple[str, ...]:
    return by_title[title].columns if title in by_title else ()


def _column(table: Table, name: str) -> dict[str, str]:
    place = table.columns.index(name)
    return {row[0]: row[place] for row in table.rows}
