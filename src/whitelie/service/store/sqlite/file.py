"""Opens the file of a SQLite store: creates it, checks that it is ours, migrates its schema."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from whitelie.errors import InvalidInput
from whitelie.service.store.migrations import NEWER_SCHEMA, migrations_of

APPLICATION_ID = int.from_bytes(b"whit")
"""The application_id of SQLite's header that marks a file as ours."""

LOCK_TIMEOUT_SECONDS = 2
"""How long SQLite waits for another process to release its lock."""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit all that the block executes, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.OperationalError):  # SQLite has rolled back already
            connection.execute("ROLLBACK")
        raise


def resolve(path: Path) -> Path:
    """Return the path of the file itself, which all processes share, through whichever links."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a circle of links
        raise InvalidInput(
            "store", str(path), f"this link leads nowhere ({error}): give another path"
        ) from error


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection to a file that exists."""
    address = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(
        address,
        timeout=LOCK_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Return the connection that writes, to a file with our newest schema."""
    if not path.exists():
        try:
            path.touch(mode=0o600)
        except OSError as error:
            reason = f"the file cannot be created ({error.strerror}): give a path you may write to"
            raise InvalidInput("store", str(path), reason) from error
    # Do not try by opening it: closing a file releases all locks of this process on it.
    if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        raise InvalidInput(
            "store", str(path), "give the path of a file that you may read and write"
        )
    if (names := path.stat().st_nlink) > 1:
        reason = (
            f"this file has {names} names (hard links), and neither a lock nor SQLite's log beside "
            "one of them guards the others: remove all names but one"
        )
        raise InvalidInput("store", str(path), reason)
    connection = connect(path)
    try:
        _migrate(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Apply missing migrations, one transaction each; refuse a file that is not ours."""
    migrations = migrations_of("sqlite")
    try:
        applied = _version(connection, path)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        reason = "this is not a SQLite database: give the path of another file, or of a new one"
        raise InvalidInput("store", str(path), reason) from error
    if applied > max(migrations):
        raise InvalidInput("store", str(path), NEWER_SCHEMA)
    for number in range(applied + 1, max(migrations) + 1):
        with transaction(connection):
            if _version(connection, path) >= number:  # another process was faster
                continue
            for statement in _statements(migrations[number]):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Return how many migrations have been applied, 0 for an empty file."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (application or tables):
        reason = (
            "this is another program's database: give the path of another file, or of a new one"
        )
        raise InvalidInput("store", str(path), reason)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
