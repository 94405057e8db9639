"""A soak: honest and hostile traffic while processes are killed; and that its checks see faults.

The short one runs everything once and says nothing about speed or memory.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters
from typing import Any, cast

import msgspec
import pytest

from helpers.service_process import HOST, SECRET, Ledger, run
from helpers.soak_caller import Job
from helpers.soak_hostile import Hostile
from helpers.soak_record import (
    ANYWHERE,
    GROWTH,
    GUARD,
    NO_ANSWER,
    SLOWEST,
    WARM_UP,
    Heard,
    Life,
    Outage,
    Record,
    Request,
    ServerError,
    findings,
    merged,
    miscounted,
    summary,
)
from helpers.soak_rig import Plan, Site, on_postgresql, on_sqlite, soak
from whitelie.service import wire
from whitelie.service.engine.tokens import TOKEN_LENGTH, TokenCipher
from whitelie.service.store.contract import Counts, Decision, Store

SECONDS = float(os.environ.get("WHITELIE_SOAK_SECONDS", "1800"))
"""How long the long soak lasts, on each store."""

LONG = Plan(seconds=SECONDS, calm=30, every=60, per_second=180, flood=48 << 20)
SHORT = Plan(seconds=3, calm=0.1, every=1.5, per_second=30, flood=1 << 20)

SITES = pytest.mark.parametrize("site_in", [on_sqlite, on_postgresql])
Opened = Callable[[Path], AbstractContextManager[Site]]


@SITES
def test_a_short_soak_with_a_kill_loses_nothing(site_in: Opened, tmp_path: Path) -> None:
    with site_in(tmp_path) as site:
        record = soak(site, SHORT, tmp_path)
    assert not findings(record, ANYWHERE)
    assert len(record.outages) == 2


@pytest.mark.long
@SITES
def test_a_soak_loses_nothing_grows_by_nothing_and_keeps_honest_visitors_served(
    site_in: Opened, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site_in(tmp_path) as site:
        record = soak(site, LONG, tmp_path)
    faults = findings(record)
    figures = {"soak": site_in.__name__, "seconds": SECONDS, "load": os.getloadavg()}
    with capsys.disabled():
        print(json.dumps({**figures, **summary(record), "faults": faults}))
    assert not faults


# The checks -------------------------------------------------------------------------------------

ARMS = 2
TOKENS = 1000
MIB = 1 << 20


@dataclass
class Stored:
    """What a store would say."""

    counts: dict[int, Counts]
    spent: int

    def totals(self, number: int) -> dict[int, Counts]:
        assert number == 1
        return self.counts

    def spent_bits(self) -> int:
        return self.spent

    def close(self) -> None:
        pass

    def __call__(self) -> Store:
        return cast(Store, self)

    def add(self, counts: Counts) -> None:
        """Add to the first arm; a report has its bit."""
        self.counts[0] = Counts(*map(sum, zip(self.counts[0], counts, strict=True)))
        self.spent += counts.answered


@dataclass
class Soaked:
    """A soak that went well: every arm has 500 decisions, of which 450 are answered, 225 by 1."""

    record: Record
    ledger: Ledger
    stored: Stored

    @classmethod
    def well(cls) -> "Soaked":
        cipher = TokenCipher([SECRET.encode()])
        tokens = [cipher.seal(Decision(1, n % ARMS, 1, n, 0, 10)) for n in range(TOKENS)]
        accepted = {token: n // ARMS % 2 for n, token in enumerate(tokens) if n % 20 < 18}
        ledgers = [Ledger(issued=tokens[:900]), Ledger(issued=tokens[900:])]
        for token, bit in accepted.items():
            ledgers[token in ledgers[1].issued].accepted[token] = bit
        ones = [
            sum(bit for n, bit in enumerate(accepted.values()) if n % ARMS == arm)
            for arm in range(ARMS)
        ]
        honest = Heard(ledgers[0], outcomes={"visitor": {"200": 5000}})
        honest.requests = [Request(n / 50, 0.01, 200) for n in range(5000)]
        hostile = Heard(ledgers[1], outcomes={"idle": {"cut": 3}})
        hostile.errors = [ServerError("attacker", 503, 2)]
        life = Life("worker", 0.0, [(float(at), 200 * MIB) for at in range(100)])
        record = Record(
            [honest, hostile],
            planned=5000,
            kinds=["visitor", "idle", "killed worker"],
            outages=[Outage("killed worker", 60, 62)],
            lives=[life],
        )
        counts = {arm: Counts(500, 450, ones[arm]) for arm in range(ARMS)}
        return cls(record, merged(ledgers), Stored(counts, 900))

    def faults(self) -> list[str]:
        return miscounted(self.ledger, self.stored) + findings(self.record)

    def delay(self, times: range, seconds: float, status: int = 200) -> None:
        requests = self.record.heard[0].requests
        for place in times:
            requests[place] = Request(requests[place].at, seconds, status)

    def grow(self, size: float) -> None:
        self.record.lives[0].memory.append((99.5, int(size * MIB)))


def lose_a_report(soaked: Soaked) -> None:
    soaked.stored.add(Counts(0, -1, 0))


def count_a_report_twice(soaked: Soaked) -> None:
    soaked.stored.add(Counts(0, 1, 1))


def count_a_report_that_nobody_sent(soaked: Soaked) -> None:
    soaked.stored.add(Counts(1, 1, 0))


def flip_a_stored_bit(soaked: Soaked) -> None:
    soaked.stored.add(Counts(0, 0, 1))


def forget_a_spent_bit(soaked: Soaked) -> None:
    soaked.stored.spent -= 1


def lose_a_decision(soaked: Soaked) -> None:
    soaked.stored.add(Counts(-1, 0, 0))


def accept_a_token_twice(soaked: Soaked) -> None:
    soaked.ledger.surprises.append("a report that was accepted before is now accepted")


def leave_a_report_in_doubt(soaked: Soaked) -> None:
    token = next(token for token in soaked.ledger.issued if token not in soaked.ledger.accepted)
    soaked.ledger.unknown[token] = 1


def answer_500(soaked: Soaked) -> None:
    soaked.record.heard[1].errors.append(ServerError("attacker", 500, 2))


def answer_503_without_retry_after(soaked: Soaked) -> None:
    soaked.record.heard[0].errors.append(ServerError("visitor", 503, 0))


def refuse_an_honest_visitor(soaked: Soaked) -> None:
    soaked.delay(range(1), 0.01, 429)


def slow_down_one_in_fifty(soaked: Soaked) -> None:
    soaked.delay(range(0, 2500, 25), SLOWEST + 0.01)


def lose_one_request_in_fifty(soaked: Soaked) -> None:
    soaked.delay(range(0, 2500, 25), 0.01, NO_ANSWER)


def turn_away_one_in_fifty(soaked: Soaked) -> None:
    soaked.delay(range(0, 2500, 25), 0.01, 503)


def be_slow_long_after_a_restart(soaked: Soaked) -> None:
    first = int((62 + GUARD + 0.1) * 50)
    soaked.delay(range(first, first + 60), 1.0)


def grow_by_a_quarter(soaked: Soaked) -> None:
    soaked.grow(200 * 1.25)


def start_again_larger(soaked: Soaked) -> None:
    memory = [(100.0 + at, int(200 * 1.25) * MIB) for at in range(100)]
    soaked.record.lives.append(Life("worker", 100.0, memory))


def end_by_itself(soaked: Soaked) -> None:
    soaked.record.noticed.append("1 workers have ended by themselves")


def leave_out_an_attack(soaked: Soaked) -> None:
    del soaked.record.heard[1].outcomes["idle"]


def leave_out_a_kill(soaked: Soaked) -> None:
    soaked.record.outages.clear()


def send_little(soaked: Soaked) -> None:
    del soaked.record.heard[0].requests[2000:]


DOCTORS = [
    lose_a_report,
    count_a_report_twice,
    count_a_report_that_nobody_sent,
    flip_a_stored_bit,
    forget_a_spent_bit,
    lose_a_decision,
    accept_a_token_twice,
    leave_a_report_in_doubt,
    answer_500,
    answer_503_without_retry_after,
    refuse_an_honest_visitor,
    slow_down_one_in_fifty,
    lose_one_request_in_fifty,
    turn_away_one_in_fifty,
    be_slow_long_after_a_restart,
    grow_by_a_quarter,
    start_again_larger,
    end_by_itself,
    leave_out_an_attack,
    leave_out_a_kill,
    send_little,
]


def test_a_soak_that_went_well_has_no_faults_and_can_be_quoted() -> None:
    soaked = Soaked.well()
    assert not soaked.faults()
    figures = json.loads(json.dumps(summary(soaked.record)))
    assert figures["honest"]["p99_ms"] == 10
    assert figures["memory_mib"] == [["worker", 200, 200]]
    assert figures["reports"] == {"issued": 1000, "accepted": 900, "unknown": 0, "refused": 0}


@pytest.mark.parametrize("doctor", DOCTORS)
def test_the_checks_see_every_fault(doctor: Callable[[Soaked], None]) -> None:
    """The negative control."""
    soaked = Soaked.well()
    doctor(soaked)
    assert len(soaked.faults()) >= 1


async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve as nobody should: every decision has a new token, and every report is accepted."""
    mechanism = wire.Mechanism(p00=0.9, p11=0.9, window=0, spread=0)
    while head := await reader.readline():
        while (line := await reader.readline()).strip():
            head += line
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        asked = json.loads(await reader.readexactly(length))
        if "count" in asked:
            token = "".join(random.choices(ascii_letters, k=TOKEN_LENGTH))
            said: Any = wire.Decisions([wire.Decision("a", None, token, mechanism, 60)])
        else:
            said = wire.Items([wire.Item("accepted")] * len(asked.get("items", [asked])))
        body = msgspec.json.encode(said)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "attack",
    [Hostile.forged_token, Hostile.mutated_token, Hostile.replayed_token, Hostile.raced_token],
)
def test_attackers_notice_what_they_should_not_get(
    attack: Callable[[Hostile, str], Awaitable[str]],
) -> None:
    """The negative control of the traffic."""
    heard, lying = Heard(), list[asyncio.Task[None]]()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lying.append(asyncio.create_task(lie(reader, writer)))

    async def attacked() -> None:
        async with await asyncio.start_server(connected, HOST, 0) as server:
            job = Job(
                side="hostile",
                port=server.sockets[0].getsockname()[1],
                experiment="e",
                admin_key="",
                page_key="",
                start=0.0,
                end=time.monotonic() + 10,
                per_second=0.0,
                flood=0,
                file="",
            )
            await attack(Hostile(job, heard), "127.0.9.1")
            await asyncio.gather(*lying)

    run(attacked())
    assert heard.ledger.surprises


def wait_for_a_restart(soaked: Soaked) -> None:
    soaked.delay(range(60 * 50, int((62 + GUARD) * 50)), 5.0, NO_ANSWER)
    soaked.delay(range(59 * 50 + 1, 60 * 50), 1.0)


def slow_down_one_in_two_hundred(soaked: Soaked) -> None:
    soaked.delay(range(0, 5000, 200), 1.0)


def grow_by_less_than_a_fifth(soaked: Soaked) -> None:
    soaked.grow(200 * GROWTH - 1)


def warm_up(soaked: Soaked) -> None:
    soaked.record.lives[0].memory.insert(0, (WARM_UP - 1, 400 * MIB))


def end_before_warm(soaked: Soaked) -> None:
    memory = [(100.0 + at, 400 * MIB) for at in range(int(WARM_UP))]
    soaked.record.lives.append(Life("worker", 100.0, memory))


@pytest.mark.parametrize(
    "doctor",
    [
        wait_for_a_restart,
        slow_down_one_in_two_hundred,
        grow_by_less_than_a_fifth,
        warm_up,
        end_before_warm,
    ],
)
def test_the_checks_let_pass_what_is_allowed(doctor: Callable[[Soaked], None]) -> None:
    soaked = Soaked.well()
    doctor(soaked)
    assert not soaked.faults()
