"""Results: numbers against their formulas, golden sentences, alarms that are honest and alert."""

import csv as csv_module
import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whitelie import IDENTITY, RandomizedResponse
from whitelie.certificate import Beginning, Certificate, Expect, conclude
from whitelie.estimate import probabilities_best, reward_interval
from whitelie.kernel.arms import Array
from whitelie.kernel.interval import feedback_interval
from whitelie.service import wire
from whitelie.service.experiment.definition import Certified
from whitelie.service.experiment.results import (
    ArmResult,
    Results,
    alarms,
    results_of,
)
from whitelie.service.experiment.results_csv import csv
from whitelie.service.experiment.snapshot import Snapshot
from whitelie.service.experiment.words import percent
from whitelie.service.minutes import DAY, time_of

NOISY = RandomizedResponse.from_epsilon(1)
TURNED = RandomizedResponse(p00=0.2, p11=0.3)


def snapshot(answered: list[int], ones: list[int], **changes: Any) -> Snapshot:
    """Everything that was issued was answered and is over, unless changed."""
    size = len(answered)
    fields: dict[str, Any] = {
        "slug": "button",
        "name": "The button",
        "status": "running",
        "keys": tuple("ABCDEFGHIJ"[:size]) if size <= 10 else tuple(map(str, range(size))),
        "channels": (NOISY,) * size,
        "retired": [False] * size,
        "issued": answered,
        "answered": answered,
        "ones": ones,
        "recent": [0] * size,
        **changes,
    }
    fields.setdefault("expired_issued", fields["issued"])
    fields.setdefault("expired_answered", fields["answered"])
    fields.setdefault("overdue", [0] * size)
    for field, value in fields.items():
        if isinstance(value, list):
            fields[field] = np.array(value)
    return Snapshot(**fields)


def of(state: Snapshot, status: str = "running") -> Results:
    return results_of(replace(state, status=status))


def codes(state: Snapshot) -> list[tuple[str, str | None]]:
    return [(alarm.code, alarm.arm) for alarm in alarms(state)]


# The table


def test_numbers_are_those_of_the_formulas() -> None:
    state = snapshot(
        [400, 500, 100],
        [200, 300, 40],
        channels=(NOISY, IDENTITY, TURNED),
        retired=[False, False, True],
        issued=[1000, 600, 150],
        expired_issued=[700, 550, 150],
        expired_answered=[390, 500, 100],
        recent=[30, 70, 0],
    )
    results = of(state)
    assert (results.experiment, results.name, results.status) == ("button", "The button", "running")
    assert results.reports == 1000
    assert [arm.key for arm in results.arms] == ["A", "B", "C"]
    assert [arm.retired for arm in results.arms] == [False, False, True]
    assert [arm.issued for arm in results.arms] == [1000, 600, 150]
    assert [arm.missing for arm in results.arms] == [310, 50, 50]
    assert [arm.pending for arm in results.arms] == [290, 50, 0]
    assert [arm.raw_rate for arm in results.arms] == [0.5, 0.6, 0.4]
    assert [arm.estimate for arm in results.arms] == pytest.approx([0.5, 0.6, 0.8])
    assert [arm.traffic_share for arm in results.arms] == [0.3, 0.7, 0]
    best = probabilities_best(state.channels[:2], state.answered[:2], state.ones[:2])
    assert [arm.probability_best for arm in results.arms] == [*best, 0]
    for k, arm in enumerate(results.arms):
        interval = reward_interval(state.channels[k], arm.answered, arm.ones, 0.05)
        assert (arm.lower, arm.upper) == interval


def test_an_arm_without_reports_has_no_rate() -> None:
    arm = of(snapshot([0, 5], [0, 2], issued=[10, 10])).arms[0]
    assert (arm.raw_rate, arm.estimate, arm.lower, arm.upper) == (None, None, 0, 1)


def test_shares_fall_back_on_all_decisions_and_then_on_nothing() -> None:
    quiet = of(snapshot([1, 3], [0, 0]))
    assert [arm.traffic_share for arm in quiet.arms] == [0.25, 0.75]
    assert [arm.traffic_share for arm in of(snapshot([0, 0], [0, 0])).arms] == [0, 0]


def test_answers_to_rolled_back_decisions_do_not_make_negative_counts() -> None:
    arm = of(snapshot([5, 9], [1, 2], issued=[3, 9], expired_issued=[1, 2])).arms[0]
    assert (arm.pending, arm.missing) == (0, 0)


def test_results_are_plain_json() -> None:
    results = of(snapshot([400, 0], [200, 0], issued=[500, 3]))
    assert msgspec.json.decode(msgspec.json.encode(results), type=Results) == results


counts = st.lists(st.tuples(*[st.integers(0, 2000)] * 6, st.booleans()), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(counts, st.sampled_from(["running", "paused", "stopped"]))
def test_every_snapshot_has_sound_results(
    rows: list[tuple[int, int, int, int, int, int, bool]], status: str
) -> None:
    """Each number of a row is cut to be at most the one it is a part of."""
    issued, closed, answered, late, ones, recent = (
        np.array(column) for column in list(zip(*rows, strict=True))[:6]
    )
    answered = np.minimum(answered, issued)
    open_issued = issued - np.minimum(closed, issued)
    expired_answered = np.clip(late, answered - np.minimum(answered, open_issued), answered)
    expired_answered = np.minimum(expired_answered, issued - open_issued)
    state = snapshot(
        list(answered),
        list(np.minimum(ones, answered)),
        retired=[row[6] for row in rows],
        issued=issued,
        expired_issued=issued - open_issued,
        expired_answered=expired_answered,
        recent=np.minimum(recent, issued),
    )
    results = of(state, status)
    shares = [arm.traffic_share for arm in results.arms]
    assert sum(shares) == pytest.approx(1 if issued.sum() else 0)
    active = [arm for arm in results.arms if not arm.retired]
    chances = [arm.probability_best for arm in results.arms]
    assert sum(chances) == pytest.approx(1 if active else 0)
    for arm in results.arms:
        assert arm.overdue is not None
        assert arm.missing is not None
        assert min(arm.pending, arm.overdue, arm.missing, arm.traffic_share) >= 0
        assert arm.issued == arm.answered + arm.missing + arm.overdue + arm.pending
        assert 0 <= arm.lower <= arm.upper <= 1
        if arm.retired:
            assert arm.probability_best == 0
    assert results.sentence.endswith(".")
    assert " 0 %" not in results.sentence
    assert "100 %" not in results.sentence
    assert results.sentence.startswith("Check the clients: ") == bool(results.alarms)
    certificate = results.certificate
    assert certificate.winner is None
    assert certificate.state == ("cannot_say" if len(active) < 2 or results.alarms else "open") or (
        [alarm.code for alarm in results.alarms] == ["nobody_reports"]
    )
    assert 0 <= certificate.progress <= 1
    assert (certificate.reason is None) == (certificate.state == "open")
    assert msgspec.json.decode(msgspec.json.encode(results), type=Results) == results
    assert len(csv(results).splitlines()) == len(rows) + 1


# The certificate


def test_evidence_is_that_of_the_certificate() -> None:
    """Up to the counts at which it is complete: then the service must note it first."""
    terms = Certificate(0.1, 0.02, Expect(rate=0.4, difference=0.1))
    complete = []
    for ones in range(1650, 2300, 50):
        state = snapshot([4000, 4000, 4000], [ones, 1600, 1650], certificate=terms)
        state = replace(state, beginning=Beginning(3), reports_per_day=600.0)
        said = of(state).certificate
        known = conclude(
            terms,
            dict(zip(state.keys, state.channels, strict=True)),
            (state.answered, state.ones),
            state.retired,
            Beginning(3),
        )
        assert (said.state, said.winner, said.leader) == ("open", None, known.leader)
        assert (said.delta, said.tolerance) == (0.1, 0.02)
        assert (said.progress, said.more_reports) == (known.progress, known.more_reports)
        assert known.more_reports is not None
        assert said.more_days == pytest.approx(known.more_reports / 600)
        assert {rival.key: tuple(msgspec.structs.astuple(rival)[1:]) for rival in said.rivals} == {
            name: tuple(rival) for name, rival in known.rivals.items()
        }
        complete.append(known.winner is not None)
        arms = of(state).arms
        for arm in arms:
            rival = known.rivals.get(arm.key)
            expected = (None, None) if rival is None else (rival.evidence, rival.needed)
            assert (arm.evidence, arm.needed) == expected
    assert (complete[0], complete[-1]) == (False, True)


def test_arms_whose_beginning_is_not_known_count_as_added() -> None:
    state = snapshot([4000, 4000], [2000, 1700])
    (usual,) = of(state).certificate.rivals
    (strict,) = of(replace(state, beginning=Beginning(1))).certificate.rivals
    assert usual.evidence == strict.evidence
    assert usual.needed < strict.needed


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (snapshot([100], [50]), "there are fewer than two arms to compare"),
        (
            snapshot([100, 100], [50, 50], retired=[True, False]),
            "there are fewer than two arms to compare",
        ),
        (
            snapshot([5000, 5000], [5000, 2500]),
            "some reports do not fit the agreed flipping",
        ),
        (
            snapshot([10_500, 10_500], [5000, 6500], issued=[21_000, 10_500]),
            "the arms are not answered equally often",
        ),
    ],
    ids=["one arm", "one active", "misspecified", "unequal"],
)
def test_where_nothing_can_be_said_the_reason_is(state: Snapshot, reason: str) -> None:
    said = of(state).certificate
    assert (said.state, said.reason) == ("cannot_say", reason)
    assert (said.winner, said.leader, said.rivals, said.progress) == (None, None, [], 0)
    assert said.sentence == f"Nobody can say which arm is best: {reason}."


def test_a_distrusted_clock_certifies_nothing() -> None:
    said = results_of(CERTIFIED, is_clock_trusted=False).certificate
    assert (said.state, said.winner) == ("cannot_say", None)
    assert said.reason == "the server's clock has jumped"
    assert of(CERTIFIED).certificate.winner == "B"


def test_what_was_certified_stays_certified() -> None:
    """Whatever the counts have come to, and although no rival is left."""
    noted = Certified("A", 1000)
    for state in (LEADING, replace(LEADING, retired=np.array([False, True]))):
        said = of(replace(state, certified=noted)).certificate
        assert (said.state, said.winner, said.progress) == ("certified", "A", 1)
        assert said.certified_at == datetime(1970, 1, 1, 16, 40, tzinfo=UTC)
        assert said.more_reports == 0


def test_a_misspecified_retired_arm_does_not_forbid_a_verdict() -> None:
    state = snapshot([5000] * 3, [5000, 2500, 1500], retired=[True, False, False])
    assert of(state).certificate.state == "open"
    assert of(state).alarms == []


# Sentences

LEADING = snapshot([2050, 2050], [1000, 1052])
CERTIFIED = snapshot([10_500, 10_500], [5000, 6500], certified=Certified("B", 1000))
SURE = "wrong with probability at most 5 %, however often one looks"


@pytest.mark.parametrize(
    ("state", "status", "sentence"),
    [
        (snapshot([0, 0], [0, 0]), "running", "No reports yet; 0 decisions issued."),
        (
            snapshot([0, 0], [0, 0], issued=[1, 0], expired_issued=[0, 0]),
            "running",
            "No reports yet; 1 decision issued.",
        ),
        (
            snapshot([0, 0], [0, 0], issued=[1000, 200], expired_issued=[0, 0]),
            "paused",
            "Paused: No reports yet; 1,200 decisions issued.",
        ),
        (snapshot([0], [0]), "stopped", "Stopped. No reports; 0 decisions issued."),
        (
            LEADING,
            "running",
            "No certificate yet: B leads with less than 1 % of the evidence; needs about 29,000 "
            "more reports. 4,100 reports so far.",
        ),
        (
            replace(LEADING, reports_per_day=4100),
            "paused",
            "Paused: No certificate yet: B leads with less than 1 % of the evidence; needs about "
            "29,000 more reports, 7 days at today's traffic. 4,100 reports so far.",
        ),
        (
            LEADING,
            "stopped",
            "Stopped. No certificate: B leads with less than 1 % of the evidence; needs about "
            "29,000 more reports. 4,100 reports.",
        ),
        (
            replace(CERTIFIED, certified=None),
            "running",
            "No certificate yet: B leads with all of the evidence that is shown; the service "
            "checks it when more reports are in. 21,000 reports so far.",
        ),
        (CERTIFIED, "running", f"B is best ({SURE}). 21,000 reports so far."),
        (CERTIFIED, "stopped", f"Stopped. B is best ({SURE}). 21,000 reports."),
        (
            replace(CERTIFIED, certificate=Certificate(0.1, 0.01)),
            "running",
            "No other is better than B by more than 0.01 (wrong with probability at most 10 %, "
            "however often one looks). 21,000 reports so far.",
        ),
        (
            replace(CERTIFIED, shipped=wire.Shipped("B", time_of(1000), time_of(2440))),
            "shipped",
            f"Shipped: everybody sees B. B is best ({SURE}). 21,000 reports so far.",
        ),
        (
            snapshot([0, 1], [0, 1], issued=[3, 3]),
            "running",
            "No certificate yet: some arms have no reports. 1 report so far.",
        ),
        (
            replace(LEADING, begun_anew=DAY, since_beginning=(np.zeros(2, int), np.zeros(2, int))),
            "running",
            "No certificate yet: after a rollback, evidence begins anew on 1970-01-02. "
            "4,100 reports so far.",
        ),
        (snapshot([41], [20]), "running", "A is the only active arm, nothing to compare; "
         "41 reports."),
        (
            snapshot([30, 11], [10, 5], retired=[True, False]),
            "running",
            "B is the only active arm, nothing to compare; 41 reports.",
        ),
        (snapshot([30, 11], [10, 5], retired=[True] * 2), "stopped", "Stopped. No arm is active; "
         "41 reports."),
        (
            snapshot([30, 0, 0], [10, 0, 0], retired=[True, False, False]),
            "running",
            "No reports on the active arms yet; 30 reports on retired ones.",
        ),
        (
            snapshot([0, 0], [0, 0], issued=[60, 60]),
            "paused",
            "Check the clients: nobody reports. Paused: No reports yet; 120 decisions issued.",
        ),
        (
            snapshot([5000, 5000], [5000, 2500]),
            "running",
            "Check the clients: some reports do not fit the agreed flipping. "
            "Until this is mended, nobody can say which arm is best; 10,000 reports.",
        ),
        (
            snapshot([10_500, 10_500], [5000, 6500], issued=[21_000, 10_500]),
            "running",
            "Check the clients: the arms are not answered equally often. "
            "Until this is mended, nobody can say which arm is best; 21,000 reports.",
        ),
        (
            snapshot([5000, 5000], [5000, 5000], issued=[10_000, 5000]),
            "running",
            "Check the clients: some reports do not fit the agreed flipping and the arms are not "
            "answered equally often. Until this is mended, nobody can say which arm is best; "
            "10,000 reports.",
        ),
    ],
)  # fmt: skip
def test_golden_sentences(state: Snapshot, status: str, sentence: str) -> None:
    assert of(state, status).sentence == sentence


@pytest.mark.parametrize("key", ["{0}", "%s %", "<b>", "a; b", "Zoë 🙂", "'; drop", "\\n"])
def test_names_stay_text(key: str) -> None:
    state = snapshot([10_500, 10_500], [5000, 6500], keys=("A", key))
    results = of(replace(state, certified=Certified(key, 1000)))
    assert results.sentence == f"{key} is best ({SURE}). 21,000 reports so far."
    issued = np.array([10_500, 21_000])
    results = of(replace(state, issued=issued, expired_issued=issued))
    assert results.alarms[0].message.startswith(f"{key} is answered less often than A: ")


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.93, 0, "93 %"),
        (0.994, 0, "99 %"),
        (0.996, 0, "more than 99 %"),
        (1.0, 0, "more than 99 %"),
        (0.004, 0, "less than 1 %"),
        (0.0, 0, "less than 1 %"),
        (0.006, 0, "1 %"),
        (0.99996, 2, "more than 99.99 %"),
        (0.00004, 2, "less than 0.01 %"),
        (0.26894, 2, "26.89 %"),
    ],
)
def test_percentages_are_never_rounded_to_certainty(share: float, digits: int, text: str) -> None:
    assert percent(share, digits) == text


# Alarms


def test_the_alarms_say_what_was_seen_and_what_to_do() -> None:
    (impossible,) = alarms(snapshot([2000, 2000], [1700, 1000]))
    assert (impossible.code, impossible.arm) == ("misspecified", "A")
    assert impossible.message == (
        "A: 85.00 % of 2,000 reports are 1, but whatever people like, honest flipping gives "
        "between 26.89 % and 73.11 %. Perhaps some clients report without flipping, or flip with "
        "other probabilities than this experiment's, or somebody sends made-up reports. Until "
        "this is mended, nothing can be said about this arm. Check which clients report and how "
        "they flip, then roll back the time in which it happened."
    )
    (unequal,) = alarms(snapshot([900, 620, 700], [450, 310, 350], issued=[1000, 1000, 1000]))
    assert (unequal.code, unequal.arm) == ("redeem_ratio", "B")
    assert unequal.message.startswith(
        "B is answered less often than A: 62.0 % (620 of 1,000) against 90.0 % (900 of 1,000) of "
        "the decisions whose time to report is over."
    )
    (silence,) = alarms(snapshot([0, 0], [0, 0], issued=[900, 600]))
    assert (silence.code, silence.arm) == ("nobody_reports", None)
    assert silence.message.startswith("1,500 decisions have run out of time to report, and not one")


def test_silence_waits_for_a_hundred_expired_decisions_and_ends_with_the_first_report() -> None:
    quiet = {"issued": [5000, 5000], "expired_answered": [0, 0]}
    assert codes(snapshot([0, 0], [0, 0], **quiet, expired_issued=[50, 49])) == []
    silent = [("nobody_reports", None)]
    assert codes(snapshot([0, 0], [0, 0], **quiet, expired_issued=[50, 50])) == silent
    assert codes(snapshot([1, 0], [0, 0], **quiet, expired_issued=[50, 50])) == []


def test_decisions_that_have_not_expired_do_not_count_as_unanswered() -> None:
    """B's decisions are younger: hardly any was answered so far, and none is late."""
    state = snapshot(
        [900, 10],
        [450, 5],
        issued=[1000, 1000],
        expired_issued=[1000, 0],
        expired_answered=[900, 0],
    )
    assert codes(state) == []


def test_unequal_redeeming_is_a_gap_between_intervals_at_a_share_of_the_level() -> None:
    for answered in range(500, 1000, 10):
        state = snapshot([answered, 500, 510], [0, 250, 250], issued=[1000] * 3)
        above = feedback_interval(1000, answered, 0.001 / 3)[0]
        below = feedback_interval(1000, 500, 0.001 / 3)[1]
        raised = ("redeem_ratio", "B") in codes(state)
        assert raised is (above > below)


def looks(source: np.random.Generator, redeem: Array, rates: Array, minutes: int) -> Iterator[Any]:
    """Yield the snapshot after every minute of a simulated experiment of 40 decisions an arm."""
    size = len(redeem)
    answered = source.binomial(40, redeem, size=(minutes, size))
    ones = source.binomial(answered, rates)
    for minute, (n, s) in enumerate(zip(answered.cumsum(0), ones.cumsum(0), strict=True)):
        yield snapshot(list(n), list(s), issued=[40 * (minute + 1)] * size)


def test_honest_experiments_raise_no_alarm_however_often_one_looks() -> None:
    """Rewards of 0 and 1 sit at the ends of what the channel can produce, where it is hardest."""
    source = np.random.default_rng(11)
    redeem = np.full(4, 0.6)
    rates = np.array([NOISY.mean_feedback(mu) for mu in (0.0, 0.02, 0.5, 1.0)])
    raised = sum(
        any(codes(state) for state in looks(source, redeem, rates, 100)) for _ in range(150)
    )
    assert raised <= 1, "0.3 % or less are expected"


def test_the_false_alarms_test_would_notice_intervals_for_one_look() -> None:
    """Control: with intervals that are good for a single look only, many runs raise an alarm."""
    source = np.random.default_rng(12)
    edge = NOISY.mean_feedback(0.0)
    raised = 0
    for _ in range(300):
        n = np.arange(1, 101) * 24
        s = source.binomial(24, edge, size=100).cumsum()
        raised += bool(np.any(s / n < edge - 1.96 * np.sqrt(edge * (1 - edge) / n)))
    assert raised > 30


@pytest.mark.parametrize(
    ("share", "reward", "reports"),
    [(1.0, 0.02, 100), (0.2, 0.02, 40_000), (0.05, 0.0, 100_000), (0.05, 1.0, 100_000)],
)
def test_clients_that_do_not_flip_are_noticed(share: float, reward: float, reports: int) -> None:
    source = np.random.default_rng(13)
    rate = (1 - share) * NOISY.mean_feedback(reward) + share * reward
    for _ in range(20):
        ones = [int(source.binomial(reports, rate)), reports // 2]
        assert codes(snapshot([reports] * 2, ones)) == [("misspecified", "A")]


def test_stuffed_ones_are_noticed() -> None:
    """Ten thousand honest reports, and a third as many from somebody who always sends 1."""
    source = np.random.default_rng(14)
    for _ in range(20):
        ones = 3333 + int(source.binomial(10_000, NOISY.mean_feedback(0.95)))
        assert codes(snapshot([13_333, 9000], [ones, 4500])) == [("misspecified", "A")]


def test_one_arm_whose_page_loses_a_tenth_of_its_reports_is_noticed() -> None:
    source = np.random.default_rng(15)
    for _ in range(20):
        answered = list(source.binomial(16_000, [0.6, 0.54, 0.6]))
        state = snapshot(answered, [n // 2 for n in answered], issued=[16_000] * 3)
        assert codes(state) == [("redeem_ratio", "B")]


# The file


def table(results: Results) -> list[list[str]]:
    return list(csv_module.reader(io.StringIO(csv(results), newline=""), strict=True))


def test_the_file_has_the_table() -> None:
    results = of(snapshot([400, 0], [200, 0], issued=[500, 0], retired=[False, True]))
    header, first, second = table(results)
    assert tuple(header) == ArmResult.__struct_fields__
    assert first[:9] == ["A", "false", "500", "400", "200", "0", "0", "100", "0.5"]
    assert second[:10] == ["B", "true", "0", "0", "0", "0", "0", "0", "", ""]
    assert float(first[10]) == results.arms[0].lower
    assert csv(results).endswith("\r\n")
    assert csv(results).startswith('"key","retired","issued"')


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_a_spreadsheet_does_not_run_a_key(start: str) -> None:
    key = start + 'HYPERLINK("http://evil", 1)'
    rows = table(of(snapshot([1, 1], [0, 0], keys=(key, "honest"))))
    assert [row[0] for row in rows] == ["key", "'" + key, "honest"]


SIGNS = "=+-@＝＋－−＠﹦﹢﹣﹫"
UNSEEN = ["", " ", "\u3000", "\u200b", "\ufeff", "\u202e", "\xad", "\0", "\u3164", "\ufe0f \u2060"]


def test_a_sign_of_any_width_behind_anything_invisible_is_not_run() -> None:
    keys = [f"{before}{sign}1+1" for before in UNSEEN for sign in SIGNS]
    rows = table(of(snapshot([0] * len(keys), [0] * len(keys), keys=tuple(keys))))
    assert [row[0] for row in rows[1:]] == ["'" + key for key in keys]


def test_a_key_that_is_no_formula_stays_as_it_is() -> None:
    keys = ["a=1", " a", "é", "1-2", "（=）", "", "\u3000"]
    rows = table(of(snapshot([0] * len(keys), [0] * len(keys), keys=tuple(keys))))
    assert [row[0] for row in rows[1:]] == keys


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_key_is_one_cell(key: str) -> None:
    rows = table(of(snapshot([0, 0], [0, 0], keys=(key, "x;=1+1"))))
    assert len(rows) == 3
    assert rows[1][0] in (key, "'" + key)
    assert rows[2][0] == "x;=1+1"
    assert '"x;=1+1"' in csv(of(snapshot([0], [0], keys=("x;=1+1",))))


# Speed


def test_two_that_lead_a_thousand_are_told_as_if_alone() -> None:
    """Cuts are rationed among many arms; they must be spent where the best arm may lie."""
    answered, ones = np.full(1000, 10_000), np.arange(3000, 4000)
    ones[:2] = 5500, 5540
    alone = probabilities_best([NOISY] * 2, answered[:2], ones[:2])
    best = [arm.probability_best for arm in of(snapshot(list(answered), list(ones))).arms]
    assert best[:2] == pytest.approx(alone, abs=5e-4)
    assert sum(best[2:]) < 1e-6
