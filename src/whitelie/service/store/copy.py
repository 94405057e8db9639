"""Copies everything from one store to another, and compares both afterwards."""

from collections.abc import Mapping

from whitelie.errors import WhitelieError
from whitelie.service.store.contract import Store


def copy(source: Store, target: Store) -> Mapping[str, int]:
    """Fill an empty store with all that another holds; return how many rows of each table."""
    source.require_alone()
    target.require_alone()
    with source.contents() as contents:
        target.fill(contents)
    if _totals(source) != _totals(target):
        raise WhitelieError(
            "the totals differ, because somebody changed the source during the copy: "
            "stop its servers, remove the target, and copy again"
        )
    sizes = target.sizes()
    return {table: sizes[table] for table in source.sizes() if table in sizes}


def _totals(store: Store) -> object:
    """Return what both stores must agree on."""
    sizes = store.sizes()
    experiments = store.experiments()
    return (
        experiments,
        store.keys(),
        [(store.totals(each.number), store.published(each.number)) for each in experiments],
        store.spent_bits(),
        [sizes[table] for table in ("epochs", "counts", "steps", "spent")],
    )
