"""What operators ask for: experiments created, changed, watched and rolled back."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from whitelie.service import openapi, registry, wire
from whitelie.service.door import Service
from whitelie.service.engine import Engine
from whitelie.service.http import header
from whitelie.service.learner import Learner
from whitelie.service.log import event
from whitelie.service.metrics import exposition
from whitelie.service.moment import DAY, minute_of, time_of
from whitelie.service.privacy import statement_of
from whitelie.service.refusal import Refusal, unavailable
from whitelie.service.results import csv
from whitelie.service.standing import arrival_of
from whitelie.service.store import Counts, Step, Unavailable
from whitelie.service.watch import latest_results, watched_results

USUAL_BUCKETS = 1_000
MOST_BUCKETS = 10_000
MOST_CELLS = 200_000
HEARTBEAT = 15
STEADY = "epochs", "experiments", "keys", "steps"
"""Tables in which a single report makes no row."""

ADDED_SINCE = "step", "sending"
"""Fields of an experiment to create that were unknown when all fields named a request."""


@dataclass(frozen=True)
class Call:
    """One request, checked: its service and its body or query."""

    service: Service
    request: Request
    body: Any

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.service.engine

    @property
    def learner(self) -> Learner:
        """The experiment that the path names."""
        return self.engine.roster.find(self.request.path_params["id"])

    @property
    def is_admin(self) -> bool:
        """Whether the key is an admin's: all others see reports in steps."""
        return _is_admin(self.engine, header(self.request.scope, b"authorization"))


def _is_admin(engine: Engine, authorization: bytes | None) -> bool:
    return engine.roster.keyring.find(authorization, engine.minute).role == "admin"


Handler = Callable[[Call], Awaitable[Any]]


async def create(call: Call) -> wire.Experiment:
    """Create an experiment, or return the one that the same request created before."""
    creation, former = _creation(call)
    experiment = call.service.rules.create(call.body, call.engine.minute, creation)
    arguments = call.engine.store, experiment, former
    saved, is_new = await call.engine.write(registry.create, *arguments)
    await call.engine.roster.refresh_if_possible()
    if is_new:
        event("experiment_created", id=saved.slug)
    return registry.definition_of(saved).view(saved.slug)


def _creation(call: Call) -> tuple[str | None, str | None]:
    """Return the name of a request that can be repeated, and the one that earlier versions gave it.

    Fields that were not given are no part of it: those that a later version adds change no name.
    Before, all were part of it that there were.
    """
    key = call.request.headers.get("idempotency-key")
    if key is None:
        return None, None
    if not 0 < len(key) <= 255:
        raise Refusal("invalid_field", "it has 1 to 255 characters", "Idempotency-Key")
    given, whole = _given(call.body), msgspec.to_builtins(call.body)
    former = {name: value for name, value in whole.items() if name not in ADDED_SINCE}
    is_former = not any(name in given for name in ADDED_SINCE)
    key_hash = _hash_of(key.encode())
    return (
        f"{key_hash} {_hash_of(msgspec.json.encode(given, order='deterministic'))}",
        f"{key_hash} {_hash_of(msgspec.json.encode(former))}" if is_former else None,
    )


def _given(asked: Any) -> Any:
    """Return what was asked for without all that is as if it were not given."""
    if isinstance(asked, list):
        return [_given(each) for each in asked]
    if not isinstance(asked, msgspec.Struct):
        return asked
    return {
        field.name: _given(value)
        for field in msgspec.structs.fields(asked)
        if (value := getattr(asked, field.name)) != field.default
    }


def _hash_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


async def list_all(call: Call) -> wire.Experiments:
    """Return all experiments."""
    return wire.Experiments(
        [learner.experiment.view(learner.slug) for learner in call.engine.roster]
    )


async def show(call: Call) -> wire.Experiment:
    """Return one experiment."""
    return call.learner.experiment.view(call.learner.slug)


async def change(call: Call) -> wire.Experiment:
    """Change an experiment."""
    learner = call.learner
    changed = call.service.rules.change(learner.experiment, call.body)
    try:
        await call.engine.write(registry.change, call.engine.store, learner.saved, changed)
    finally:
        await call.engine.roster.refresh_if_possible()
    event("experiment_changed", id=learner.slug, status=changed.status)
    return changed.view(learner.slug)


async def delete(call: Call) -> None:
    """Delete an experiment and all its counts."""
    learner = call.learner
    await call.engine.delete(learner)
    event("experiment_deleted", id=learner.slug)


async def results(call: Call) -> Any:
    """Return what the reports say; admins see also how late they come."""
    learner = call.learner
    found = await latest_results(call.engine, learner, is_admin=call.is_admin)
    if not call.is_admin:
        return found
    wanted = call.engine.store, learner.number, learner.experiment, call.engine.minute
    return msgspec.structs.replace(found, arrival=await asyncio.to_thread(arrival_of, *wanted))


async def results_csv(call: Call) -> Response:
    """Return the results as a table."""
    learner = call.learner
    text = csv(await latest_results(call.engine, learner, is_admin=call.is_admin))
    name = {"content-disposition": f'attachment; filename="{learner.slug}.csv"'}
    return Response(text, media_type="text/csv", headers=name)


async def history(call: Call) -> wire.History:
    """Return counts over time."""
    learner, period = call.learner, call.body
    start = learner.experiment.created if period.start is None else minute_of(period.start)
    stop = call.engine.minute + 1 if period.stop is None else minute_of(period.stop)
    if stop <= start:
        raise Refusal("invalid_field", "the period must end after it begins", "to")
    most = min(MOST_BUCKETS, MOST_CELLS // len(learner.issued))
    width = period.minutes or _fitting(stop - start, most)
    if (stop - start) / width > most:
        message = f"this makes more than {most} buckets"
        raise Refusal("invalid_field", message, "minutes" if period.minutes else "from")
    keys = tuple(learner.experiment.positions)
    # Days that were joined, or shown at once, stand at their beginning.
    first = start - start % DAY if period.start is None else start
    span, is_admin = (learner.number, first, stop, width), call.is_admin

    def read() -> list[wire.Bucket]:
        store = call.engine.store
        found = store.history(*span)
        if not is_admin:
            found = _in_steps(found, store.steps(*span))
        buckets: dict[int, dict[int, Counts]] = {}
        for (minute, arm), counts in sorted(found.items()):
            buckets.setdefault(minute, {})[arm] = counts
        return [
            wire.Bucket(time_of(minute), _by_key(keys, arms)) for minute, arms in buckets.items()
        ]

    return wire.History(width, await asyncio.to_thread(read))


def _in_steps(
    issued: Mapping[tuple[int, int], Counts], steps: Mapping[tuple[int, int], Step]
) -> Mapping[tuple[int, int], Counts]:
    """Return decisions by the minute of issue, and reports by the minute in which they were shown.

    A place where nothing was issued would tell of a late report: it is left out.
    """
    found = {place: Counts(counts.issued) for place, counts in issued.items() if counts.issued > 0}
    for place, step in steps.items():
        known = found.get(place, Counts())
        found[place] = known._replace(answered=step.answered, ones=step.ones)
    return found


def _fitting(minutes: int, most: int) -> int:
    """Return the shortest usual width of which a thousand, or at most `most`, are enough."""
    usual = min(USUAL_BUCKETS, most)
    return next((width for width in (1, 5, 15, 60, 360) if minutes <= width * usual), DAY)


def _by_key(keys: Sequence[str], arms: Mapping[int, Counts]) -> list[wire.ArmCounts]:
    return [wire.ArmCounts(keys[arm], *counts) for arm, counts in arms.items()]


async def roll_back(call: Call) -> wire.Removed:
    """Remove the counts of a span of minutes."""
    learner, span = call.learner, call.body
    start, stop = minute_of(span.start), minute_of(span.stop)
    for field, time in (("from", span.start), ("to", span.stop)):
        if time.second or time.microsecond:
            raise Refusal("invalid_field", "give whole minutes", field)
    if start < 0:
        raise Refusal("invalid_field", "a span begins after 1970 does", "from")
    if not start < stop <= call.engine.minute:
        message = "a span ends after it begins, and before the minute that it is now"
        raise Refusal("invalid_field", message, "to")
    joined = learner.experiment.joined_before(call.engine.minute)
    if start < joined and (start % DAY or min(stop, joined) % DAY):
        message = f"minutes before {time_of(joined):%Y-%m-%d} are joined: give whole days of UTC"
        raise Refusal("invalid_field", message, "from")
    removed = await call.engine.roll_back(learner, start, stop)
    event("rolled_back", id=learner.slug, start=time_of(start), stop=time_of(stop))
    return wire.Removed(_by_key(tuple(learner.experiment.positions), removed))


async def privacy(call: Call) -> wire.Privacy:
    """Return what devices are promised."""
    return statement_of(call.learner.slug, call.learner.experiment)


async def stream(call: Call) -> Response:
    """Send the results whenever they have changed, at most once a second."""
    learner = call.learner
    if call.request.method == "HEAD":
        return Response(media_type="text/event-stream")
    key = header(call.request.scope, b"authorization")
    return StreamingResponse(_events(call.engine, learner, key), media_type="text/event-stream")


async def _events(engine: Engine, learner: Learner, key: bytes | None) -> AsyncIterator[bytes]:
    sent, silent = b"", 0
    while learner in engine.roster and not engine.is_closing:
        if not engine.roster.keyring.has(key, engine.minute):
            return
        found, is_admin = sent, _is_admin(engine, key)
        with suppress(Unavailable):  # then what was sent is still the latest
            latest = await watched_results(engine, learner, is_admin=is_admin)
            found = msgspec.json.encode(latest)
        silent += 1
        if found != sent:
            sent, silent = found, 0
            yield b"event: results\ndata: " + found + b"\n\n"
        elif silent >= HEARTBEAT:
            silent = 0
            yield b": still here\n\n"
        await engine.pause(1)


async def stored(call: Call) -> wire.Stored:
    """Return how many rows each table has; for readers, those in which no single report shows."""
    tables = dict(await asyncio.to_thread(call.engine.store.sizes))
    return wire.Stored(tables if call.is_admin else {name: tables[name] for name in STEADY})


async def healthz(call: Call) -> wire.Health:
    """The process lives if it answers."""
    return wire.Health("ok")


async def readyz(call: Call) -> wire.Health:
    """Whether the store works, as far as is known, and the clock can be trusted."""
    if not call.engine.writer.is_available:
        raise unavailable()
    call.engine.clock.check()
    return wire.Health("ok")


async def metrics(call: Call) -> Response:
    """Return counters for Prometheus."""
    if call.engine.store.is_shared:
        with suppress(Unavailable):  # then the latest counts that are known here will do
            await call.engine.recount(list(call.engine.roster))
    found = await asyncio.to_thread(exposition, call.engine, is_admin=call.is_admin)
    return Response(found, media_type="text/plain; version=0.0.4")


async def document(call: Call) -> Response:
    """Return the OpenAPI document."""
    return Response(openapi.encoded(), media_type="application/json")


HANDLERS: dict[str, Handler] = {
    "create": create,
    "list": list_all,
    "show": show,
    "change": change,
    "delete": delete,
    "results": results,
    "results_csv": results_csv,
    "history": history,
    "stream": stream,
    "roll_back": roll_back,
    "privacy": privacy,
    "stored": stored,
    "healthz": healthz,
    "readyz": readyz,
    "metrics": metrics,
    "openapi": document,
}
"""Who does each operation that is not done at the door."""
