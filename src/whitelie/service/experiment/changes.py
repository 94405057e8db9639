"""Changes of experiments in a store: each is created once per request, under its own slug."""

from collections.abc import Iterator, Mapping
from itertools import count

import msgspec

from whitelie.service.experiment.definition import Experiment, slug_of
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Counts, Restatement, Store, StoredExperiment


def definition_of(saved: StoredExperiment) -> Experiment:
    """Return the experiment that a store has saved."""
    return msgspec.json.decode(saved.definition, type=Experiment)


def create(
    store: Store, experiment: Experiment, former: str | None = None
) -> tuple[StoredExperiment, bool]:
    """Save a new experiment; return it, or that of the same request, and whether it is new.

    `former` is how an earlier version identified the request.
    """
    definition, creation = msgspec.json.encode(experiment).decode(), experiment.creation
    key_hash = None if creation is None else creation.split()[0]
    for slug in _slugs(experiment.name):
        # In every turn: if it could not be saved, the same request may have been faster.
        if (known := _created_before(store, creation, former)) is not None:
            return known, False
        if (saved := store.save(slug, definition, key_hash)) is not None:
            return saved, True
    raise AssertionError("slugs never end")


def change(store: Store, saved: StoredExperiment, experiment: Experiment) -> StoredExperiment:
    """Save a changed experiment, unless somebody else has changed it since `saved`."""
    changed = store.change(saved, msgspec.json.encode(experiment).decode())
    if changed is None:
        raise _changed_meanwhile()
    return changed


def roll_back(
    store: Store,
    saved: StoredExperiment,
    experiment: Experiment,
    span: tuple[int, int],
    minute: int,
) -> Mapping[int, Counts]:
    """Save an experiment with a span rolled back; remove the counts of the span and return them."""
    definition = msgspec.json.encode(experiment).decode()
    restated = Restatement(minute, experiment.step)
    removed = store.roll_back(saved.number, *span, (saved, definition), restated)
    if removed is None:
        raise _changed_meanwhile()
    return removed


def _changed_meanwhile() -> Refusal:
    return Refusal(
        "changed_meanwhile",
        "somebody else has changed it; read it again and repeat the change",
        "id",
    )


def _slugs(name: str) -> Iterator[str]:
    base = slug_of(name)
    yield base
    for number in count(2):
        yield f"{base}-{number}"


def _created_before(
    store: Store, creation: str | None, former: str | None
) -> StoredExperiment | None:
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
