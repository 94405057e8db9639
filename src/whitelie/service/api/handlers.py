"""Handlers of all operations but decisions and feedback: what operators ask for."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from whitelie.service import wire
from whitelie.service.api import openapi
from whitelie.service.api.hot_path import Service
from whitelie.service.api.http import header
from whitelie.service.api.metrics import exposition
from whitelie.service.engine import administration
from whitelie.service.engine.engine import Engine
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.recount import recount
from whitelie.service.engine.results_cache import cached_results, latest_results
from whitelie.service.experiment import changes
from whitelie.service.experiment.arrival import arrival_of
from whitelie.service.experiment.definition import DEFAULT_POLICY
from whitelie.service.experiment.privacy_statement import statement_of
from whitelie.service.experiment.results_csv import csv
from whitelie.service.log import event
from whitelie.service.minutes import DAY, minute_of, time_of
from whitelie.service.refusals import Refusal, unavailable
from whitelie.service.store.contract import Counts, Step, Unavailable

USUAL_BUCKETS = 1_000
"""Most buckets of a history whose width the client leaves to the service."""

MOST_BUCKETS = 10_000
"""Most buckets of any history."""

MOST_CELLS = 200_000
"""Most buckets times arms of any history."""

HEARTBEAT_SECONDS = 15
"""How long a stream may be silent."""

READER_TABLES = "epochs", "experiments", "keys", "steps"
"""Tables that readers may see: a single report adds no row to them."""

ADDED_SINCE = "step", "sending", "goal", "expect", "delta", "tolerance", "then"
"""Fields of a new experiment that earlier versions, which hashed all fields, did not have."""


@dataclass(frozen=True)
class Call:
    """One request whose key, body and query are checked."""

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
        return self.engine.directory.find(self.request.path_params["id"])

    @property
    def is_admin(self) -> bool:
        """Whether the key is an admin's: all others see reports in steps."""
        return _is_admin(self.engine, header(self.request.scope, b"authorization"))


def _is_admin(engine: Engine, authorization: bytes | None) -> bool:
    return engine.directory.keyring.find(authorization, engine.clock.minute).role == "admin"


Handler = Callable[[Call], Awaitable[Any]]


async def create(call: Call) -> wire.Experiment:
    """Create an experiment, or return the one that the same request created before."""
    creation, former = _creation(call)
    experiment = call.service.validator.create(call.body, call.engine.clock.minute, creation)
    saved, is_new = await administration.create(call.engine, experiment, former)
    if is_new:
        event("experiment_created", id=saved.slug)
    return changes.definition_of(saved).view(saved.slug)


def _creation(call: Call) -> tuple[str | None, str | None]:
    """Return what identifies a request by its Idempotency-Key, now and in earlier versions.

    Only fields that were given are hashed, so that a field which a later version adds changes no
    hash. Earlier versions hashed all fields that they knew.
    """
    key = call.request.headers.get("idempotency-key")
    if key is None:
        return None, None
    if not 0 < len(key) <= 255:
        raise Refusal("invalid_field", "it has 1 to 255 characters", "Idempotency-Key")
    given, whole = _given(call.body), msgspec.to_builtins(call.body)
    # Earlier versions had a default instead of no policy, and no policy with `know`.
    if given.get("policy") == DEFAULT_POLICY:
        del given["policy"]
    policy = whole["policy"] = whole["policy"] or DEFAULT_POLICY
    if isinstance(policy, dict) and policy["know"] is None:
        del policy["know"]
    former = {name: value for name, value in whole.items() if name not in ADDED_SINCE}
    is_former = not any(name in given for name in ADDED_SINCE)
    key_hash = _hash_of(key.encode())
    return (
        f"{key_hash} {_hash_of(msgspec.json.encode(given, order='deterministic'))}",
        f"{key_hash} {_hash_of(msgspec.json.encode(former))}" if is_former else None,
    )


def _given(asked: Any) -> Any:
    """Return what was asked for, without fields that have their default."""
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
        [learner.experiment.view(learner.slug) for learner in call.engine.directory]
    )


async def show(call: Call) -> wire.Experiment:
    """Return one experiment."""
    return call.learner.experiment.view(call.learner.slug)


async def change(call: Call) -> wire.Experiment:
    """Change an experiment."""
    learner = call.learner
    changed = call.service.validator.change(learner.experiment, call.body)
    await administration.change(call.engine, learner, changed)
    event("experiment_changed", id=learner.slug, status=changed.status)
    return changed.view(learner.slug)


async def ship(call: Call) -> wire.Experiment:
    """Let everybody see one arm."""
    learner, minute = call.learner, call.engine.clock.minute
    changed = call.service.validator.ship(learner.experiment, call.body.arm, minute)
    if changed != learner.experiment:
        await administration.change(call.engine, learner, changed)
        event("shipped", id=learner.slug, arm=call.body.arm, by="admin")
    return changed.view(learner.slug)


async def unship(call: Call) -> wire.Experiment:
    """Let the experiment go on as before an arm was shipped."""
    learner = call.learner
    changed = call.service.validator.unship(learner.experiment, call.engine.clock.minute)
    await administration.change(call.engine, learner, changed)
    event("unshipped", id=learner.slug)
    return changed.view(learner.slug)


async def delete(call: Call) -> None:
    """Delete an experiment and all its counts."""
    learner = call.learner
    await administration.delete(call.engine, learner)
    event("experiment_deleted", id=learner.slug)


async def results(call: Call) -> Any:
    """Return what the reports say; admins also see how late they come."""
    learner = call.learner
    latest = await latest_results(call.engine, learner, is_admin=call.is_admin)
    if not call.is_admin:
        return latest
    wanted = call.engine.store, learner.number, learner.experiment, call.engine.clock.minute
    return msgspec.structs.replace(latest, arrival=await asyncio.to_thread(arrival_of, *wanted))


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
    stop = call.engine.clock.minute + 1 if period.stop is None else minute_of(period.stop)
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
        counted = store.history(*span)
        if not is_admin:
            counted = _in_steps(counted, store.steps(*span))
        buckets: dict[int, dict[int, Counts]] = {}
        for (minute, arm), counts in sorted(counted.items()):
            buckets.setdefault(minute, {})[arm] = counts
        return [
            wire.Bucket(time_of(minute), _by_key(keys, arms)) for minute, arms in buckets.items()
        ]

    return wire.History(width, await asyncio.to_thread(read))


def _in_steps(
    issued: Mapping[tuple[int, int], Counts], steps: Mapping[tuple[int, int], Step]
) -> Mapping[tuple[int, int], Counts]:
    """Return decisions by the minute of issue, and reports by the minute in which they were shown.

    A place where nothing was issued is left out: it would tell of a late report.
    """
    shown = {place: Counts(counts.issued) for place, counts in issued.items() if counts.issued > 0}
    for place, step in steps.items():
        known = shown.get(place, Counts())
        shown[place] = known._replace(answered=step.answered, ones=step.ones)
    return shown


def _fitting(minutes: int, most: int) -> int:
    """Return the shortest usual width that makes at most 1,000 buckets, and at most `most`."""
    usual = min(USUAL_BUCKETS, most)
    return next((width for width in (1, 5, 15, 60, 360) if minutes <= width * usual), DAY)


def _by_key(keys: Sequence[str], arms: Mapping[int, Counts]) -> list[wire.ArmCounts]:
    return [wire.ArmCounts(keys[arm], *counts) for arm, counts in arms.items()]


async def roll_back(call: Call) -> wire.Removed:
    """Remove the counts of a span of minutes; their tokens expire."""
    learner, span = call.learner, call.body
    start, stop = minute_of(span.start), minute_of(span.stop)
    for field, time in (("from", span.start), ("to", span.stop)):
        if time.second or time.microsecond:
            raise Refusal("invalid_field", "give whole minutes", field)
    if start < 0:
        raise Refusal("invalid_field", "a span begins in 1970 or later", "from")
    if not start < stop <= call.engine.clock.minute:
        message = "a span must end after it begins, and cannot include the current minute"
        raise Refusal("invalid_field", message, "to")
    joined = learner.experiment.joined_before(call.engine.clock.minute)
    if start < joined and (start % DAY or min(stop, joined) % DAY):
        message = f"minutes before {time_of(joined):%Y-%m-%d} are joined: give whole days of UTC"
        raise Refusal("invalid_field", message, "from")
    removed = await administration.roll_back(call.engine, learner, start, stop)
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
    sent, silent, was_certified = b"", 0, None
    while learner in engine.directory and not engine.is_closing:
        if not engine.directory.keyring.has(key, engine.clock.minute):
            return
        latest, is_admin, certified = sent, _is_admin(engine, key), b""
        with suppress(Unavailable):  # then what was sent is still the latest
            results = await cached_results(engine, learner, is_admin=is_admin)
            latest = msgspec.json.encode(results)
            is_certified = results.certificate.state == "certified"
            if is_certified and was_certified is False:
                certified = msgspec.json.encode(results.certificate)
            was_certified = is_certified
        silent += 1
        if latest != sent:
            sent, silent = latest, 0
            yield b"event: results\ndata: " + latest + b"\n\n"
            if certified:
                yield b"event: certified\ndata: " + certified + b"\n\n"
        elif silent >= HEARTBEAT_SECONDS:
            silent = 0
            yield b": still here\n\n"
        await engine.pause(1)


async def stored(call: Call) -> wire.Stored:
    """Return how many rows each table has; readers see some tables only."""
    tables = dict(await asyncio.to_thread(call.engine.store.sizes))
    return wire.Stored(tables if call.is_admin else {name: tables[name] for name in READER_TABLES})


async def healthz(call: Call) -> wire.Health:
    """Say that the process lives: it answers."""
    return wire.Health("ok")


async def readyz(call: Call) -> wire.Health:
    """Say whether the store can be written, as far as is known, and the clock is trusted."""
    if not call.engine.writer.is_available:
        raise unavailable()
    call.engine.clock.check()
    return wire.Health("ok")


async def metrics(call: Call) -> Response:
    """Return counters for Prometheus."""
    if call.engine.store.is_shared:
        with suppress(Unavailable):  # then the latest counts that are known here will do
            await recount(call.engine, list(call.engine.directory))
    text = await exposition(call.engine, is_admin=call.is_admin)
    return Response(text, media_type="text/plain; version=0.0.4")


async def document(call: Call) -> Response:
    """Return the OpenAPI document."""
    return Response(openapi.encoded(), media_type="application/json")


HANDLERS: dict[str, Handler] = {
    "create": create,
    "list": list_all,
    "show": show,
    "change": change,
    "ship": ship,
    "unship": unship,
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
"""The handler of each operation that is not on the hot path."""
