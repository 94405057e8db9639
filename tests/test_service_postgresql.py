"""The shared store: the laws of every store, on a real PostgreSQL."""

from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from postgres import Postgres
from store_contract import Opener, StoreContract
from whitelie.service.store.postgresql import PostgresStore

EMPTY = "TRUNCATE " + ", ".join(
    f"whitelie.{table}" for table in ("epochs", "experiments", "keys", "counts", "totals", "spent")
)


class TestPostgreSQL(StoreContract):
    more: ClassVar[dict[str, int]] = {"totals": 2}

    @pytest.fixture
    def fresh(self, postgres: Postgres) -> Iterator[Callable[[], Opener]]:
        address = postgres.new_database()
        stores: list[PostgresStore] = []

        def close_all() -> None:
            while stores:
                stores.pop().close()

        def make() -> Opener:
            close_all()
            opened()
            postgres.execute(address, EMPTY)
            return opened

        def opened() -> PostgresStore:
            stores.append(PostgresStore(address))
            return stores[-1]

        yield make
        close_all()
