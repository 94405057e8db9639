"""The database of a PostgreSQL store: how to connect, whether it is ours, and its migrations."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from whitelie.errors import InvalidInput
from whitelie.service.store.migrations import NEWER_SCHEMA, migrations_of

SCHEMA = "whitelie"
"""The schema of all our tables, in whichever database an address names."""

MIN_SERVER_VERSION = 14
"""The oldest major version of PostgreSQL that works."""

_CONNECTION_DEFAULTS: Mapping[str, str] = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_SESSION_SETTINGS: Mapping[str, str] = {
    "search_path": SCHEMA,
    "synchronous_commit": "on",
    "default_transaction_isolation": r"read\ committed",
    "idle_in_transaction_session_timeout": "10s",
    "jit": "off",
}
Connection = psycopg.Connection[tuple[Any, ...]]

_LOCK_MIGRATIONS = "SELECT pg_advisory_xact_lock(2003331444, 2)"  # b"whit"
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = %s"


def parameters(address: str) -> dict[str, Any]:
    """Return libpq's parameters for an address, with the settings that every session needs."""
    try:
        given = conninfo_to_dict(address)
    except psycopg.ProgrammingError:  # whose message may repeat a password
        raise _malformed() from None
    known = {name: str(value) for name, value in given.items() if value is not None}
    names = known.get("host", ""), known.get("dbname", "")
    if any("@" in name for name in names) or not known.get("port", "0").replace(",", "").isdigit():
        raise _malformed()
    session = " ".join(f"-c {name}={value}" for name, value in _SESSION_SETTINGS.items())
    return {
        **_CONNECTION_DEFAULTS,
        **known,
        "options": f"{known.get('options', '')} {session}".strip(),
    }


def _malformed() -> InvalidInput:
    reason = "give postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with signs such as / or @ as %XX"
    return InvalidInput("store", "(not shown)", reason)


def without_password(address: str) -> str:
    """Return an address without its password.

    >>> without_password("postgresql://shop:hush@db.example/decide")
    'postgresql://shop@db.example/decide'
    """
    known = parameters(address)
    user = f"{known['user']}@" if "user" in known else ""
    host = known.get("host", "")
    port = f":{known['port']}" if "port" in known else ""
    return f"postgresql://{user}{host}{port}/{known.get('dbname', '')}"


def prepare(address: str, *, must_exist: bool = False) -> None:
    """Apply missing migrations, or refuse a database that cannot be used."""
    with _refusing(address), psycopg.connect(**parameters(address)) as connection:
        if connection.info.server_version < MIN_SERVER_VERSION * 10_000:
            reason = f"this is PostgreSQL {connection.info.server_version // 10_000}"
            reason += f": version {MIN_SERVER_VERSION} or newer is needed"
            raise InvalidInput("store", without_password(address), reason)
        if must_exist and not _version(connection, address):
            reason = "there is no store in this database; `whitelie serve` creates it"
            raise InvalidInput(
                "store", without_password(address), f"{reason}, or give another --store"
            )
        _migrate(connection, address)
        connection.execute("UPDATE state SET probes = probes + 1")  # may this role write?


def _migrate(connection: Connection, address: str) -> None:
    """Apply the migrations that are missing, in one transaction, under a lock."""
    migrations = migrations_of("postgresql")
    applied = _version(connection, address)
    if applied > max(migrations):
        raise InvalidInput("store", without_password(address), NEWER_SCHEMA)
    if applied == max(migrations):
        return
    connection.execute(_LOCK_MIGRATIONS)
    applied = _version(connection, address)  # another process may have been faster
    if connection.execute("SELECT to_regnamespace(%s)", (SCHEMA,)).fetchone() == (None,):
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
    for number in range(applied + 1, max(migrations) + 1):
        connection.execute(migrations[number].encode())
        connection.execute("UPDATE state SET version = %s", (number,))


def _version(connection: Connection, address: str) -> int:
    """Return how many migrations have been applied; 0 if none of our tables exists."""
    tables = {name for (name,) in connection.execute(_TABLES, (SCHEMA,))}
    if not tables:
        return 0
    try:
        row = connection.execute(f"SELECT version FROM {SCHEMA}.state").fetchone()
    except (errors.UndefinedTable, errors.UndefinedColumn):
        reason = f"its schema {SCHEMA} has tables of another program: give another database"
        raise InvalidInput("store", without_password(address), reason) from None
    return 0 if row is None else int(row[0])


@contextmanager
def _refusing(address: str) -> Iterator[None]:
    """Raise `InvalidInput` for whatever the database refuses at the start."""
    try:
        yield
    except errors.InsufficientPrivilege as error:
        reason = (
            f"{one_line(error)}; let the role own the schema {SCHEMA}, or let it create schemas"
        )
        raise InvalidInput("store", without_password(address), reason) from None
    except psycopg.Error as error:
        reason = (
            f"{one_line(error)}; check the address, and that the role may write to the database"
        )
        raise InvalidInput("store", without_password(address), reason) from None


def one_line(error: psycopg.Error) -> str:
    """Return the database's message, without its hints and without a password."""
    said = error.diag.message_primary or str(error)
    return " ".join(said.split("\n")[0].split()).rstrip(".")
