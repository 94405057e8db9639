"""How far a certificate has come: whether one arm is known to be best, or what is missing.

*Certified* is what the service has noted in the definition, from the counts of all arms at one time
(`engine/certification.py`). Evidence and progress here are those of the counts that are shown.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from whitelie.certificate import Conclusion
from whitelie.service.experiment.snapshot import Snapshot
from whitelie.service.experiment.words import about, duration, percent
from whitelie.service.minutes import time_of


class RivalState(msgspec.Struct, frozen=True):
    """The evidence that the leader is better than this arm, and how much a certificate needs."""

    key: str
    evidence: float
    needed: float
    more_reports: int | None


class CertificateState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one arm is known to be best.

    A certified `winner` is wrong with probability at most `delta`, however often anybody looks: no
    other arm is better by more than `tolerance`. While it is open, `progress` is the
    least share of the evidence against a rival; `more_reports` and `more_days` are guesses, null
    where none can be made. `reason` says why nothing can be said.
    """

    state: Literal["certified", "open", "cannot_say"]
    winner: str | None
    leader: str | None
    delta: float
    tolerance: float
    progress: float
    more_reports: int | None
    more_days: float | None
    certified_at: datetime | None
    reason: str | None
    sentence: str
    rivals: list[RivalState]


def certificate_of(snapshot: Snapshot, doubt: str | None = None) -> CertificateState:
    """Return how far the certificate has come; a `doubt` is why nothing may be said."""
    conclusion, noted = snapshot.conclude(), snapshot.certified
    reason = doubt or (conclusion.cannot_say if noted is None else None)
    if reason is not None:
        return _state(snapshot, conclusion, state="cannot_say", reason=reason)
    if noted is not None:
        known = {"winner": noted.arm, "progress": 1.0, "more_reports": 0, "more_days": 0.0}
        return _state(snapshot, conclusion, state="certified", **known)
    more, rate = conclusion.more_reports, snapshot.reports_per_day
    known = {
        "progress": conclusion.progress,
        "more_reports": more,
        "more_days": None if more is None or rate is None else more / rate,
    }
    return _state(snapshot, conclusion, state="open", **known)


def _state(snapshot: Snapshot, conclusion: Conclusion, **known: Any) -> CertificateState:
    is_silent = known["state"] == "cannot_say"
    rivals = {} if is_silent else conclusion.rivals
    usual: dict[str, Any] = {
        "winner": None,
        "leader": None if is_silent else conclusion.leader,
        "delta": conclusion.delta,
        "tolerance": conclusion.tolerance,
        "progress": 0.0,
        "more_reports": None,
        "more_days": None,
        "certified_at": None if snapshot.certified is None else time_of(snapshot.certified.minute),
        "reason": None,
        "sentence": "",
        "rivals": [RivalState(str(key), *rival) for key, rival in rivals.items()],
    }
    state = CertificateState(**{**usual, **known})
    return msgspec.structs.replace(state, sentence=_sentence(snapshot, state))


def _sentence(snapshot: Snapshot, state: CertificateState) -> str:
    if state.state == "cannot_say":
        return f"Nobody can say which arm is best: {state.reason}."
    if state.state == "certified":
        sure = f"wrong with probability at most {100 * state.delta:g} %, however often one looks"
        if state.tolerance:
            return (
                f"No other is better than {state.winner} by more than {state.tolerance:g} ({sure})."
            )
        return f"{state.winner} is best ({sure})."
    yet = "" if snapshot.status == "stopped" else " yet"
    return f"No certificate{yet}: {_progress(snapshot, state)}."


def _progress(snapshot: Snapshot, state: CertificateState) -> str:
    if state.leader is None and snapshot.begun_anew is not None:
        return f"after a rollback, evidence begins anew on {time_of(snapshot.begun_anew):%Y-%m-%d}"
    if state.leader is None:
        return "some arms have no reports"
    if state.progress >= 1:
        shown = f"{state.leader} leads with all of the evidence that is shown"
        return f"{shown}; the service checks it when more reports are in"
    lead = f"{state.leader} leads with {percent(state.progress)} of the evidence"
    if state.more_reports is None:
        return lead
    needs = f"{lead}; needs about {about(state.more_reports)} more reports"
    if state.more_days is None:
        return needs
    return f"{needs}, {duration(state.more_days)} at today's traffic"
