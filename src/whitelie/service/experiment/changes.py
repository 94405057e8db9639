"""Experiments in a store: created once per request, under a slug of their own, and changed."""

from collections.abc import Iterator, Mapping
from itertools import count

import msgspec

from whitelie.service.experiment import Experiment, slug_of
from whitelie.service.refusal import Refusal
from whitelie.service.store import Counts, Restated, Saved, Store


def definition_of(saved: Saved) -> Experiment:
    """Return the experiment that the store keeps."""
    return msgspec.json.decode(saved.definition, type=Experiment)


def create(store: Store, experiment: Experiment, former: str | None = None) -> tuple[Saved, bool]:
    """Keep a new experiment; return it, or the one of the same request, and whether it is new.

    `former` is the name that an earlier version gave to the request.
    """
    definition, creation = msgspec.json.encode(experiment).decode(), experiment.creation
    key_hash = None if creation is None else creation.split()[0]
    for slug in _slugs(experiment.name):
        # Each time anew: that it could not be saved may mean that the same request was faster.
        if (known := _created_before(store, creation, former)) is not None:
            return known, False
        if (saved := store.save(slug, definition, key_hash)) is not None:
            return saved, True
    raise AssertionError("slugs never end")


def change(store: Store, saved: Saved, experiment: Experiment) -> Saved:
    """Keep an experiment that has been changed from what was saved."""
    changed = store.change(saved, msgspec.json.encode(experiment).decode())
    if changed is None:
        raise _changed_meanwhile()
    return changed


def roll_back(
    store: Store, saved: Saved, experiment: Experiment, span: tuple[int, int], minute: int
) -> Mapping[int, Counts]:
    """Keep an experiment with a span rolled back now, and remove and return the span's counts."""
    definition = msgspec.json.encode(experiment).decode()
    restated = Restated(minute, experiment.step)
    removed = store.roll_back(saved.number, *span, (saved, definition), restated)
    if removed is None:
        raise _changed_meanwhile()
    return removed


def _changed_meanwhile() -> Refusal:
    return Refusal("changed_meanwhile", "somebody else has changed it; look and try again", "id")


def _slugs(name: str) -> Iterator[str]:
    base = slug_of(name)
    yield base
    for number in count(2):
        yield f"{base}-{number}"


def _created_before(store: Store, creation: str | None, former: str | None) -> Saved | None:
    """Return the experiment that this request has created before, if any."""
    if creation is None:
        return None
    for saved in store.experiments():
        known = definition_of(saved).creation
        if known is None:
            continue
        if known in (creation, former):
            return saved
        if known.split()[0] == creation.split()[0]:
            message = "this key was used to create another experiment"
            raise Refusal("idempotency_conflict", message, "Idempotency-Key")
    return None
