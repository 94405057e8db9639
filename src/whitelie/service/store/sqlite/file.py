"""The file of a SQLite store: made, recognised as ours, and brought to the newest schema."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from whitelie.errors import InvalidInput
from whitelie.service.store.migrations import NEWER, steps_of

APPLICATION = int.from_bytes(b"whit")
"""Marks a SQLite file as ours."""

WAIT = 2
"""Seconds for which a lock of another process is waited for."""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Do all that follows, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.OperationalError):  # SQLite has rolled back by itself
            connection.execute("ROLLBACK")
        raise


def resolved(path: Path) -> Path:
    """Return the path of the file itself, which is the same for all who share it through links."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # links that go round in a circle
        raise InvalidInput("store", str(path), f"this link leads nowhere ({error})") from error


def connected(path: Path) -> sqlite3.Connection:
    """Return a connection to a file that is there."""
    address = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(
        address, timeout=WAIT, isolation_level=None, check_same_thread=False, uri=True
    )


def opened(path: Path) -> sqlite3.Connection:
    """Return the connection that writes, to a file of our newest schema."""
    if not path.exists():
        try:
            path.touch(mode=0o600)
        except OSError as error:
            reason = f"no file can be made there ({error.strerror}): give a path that you may write"
            raise InvalidInput("store", str(path), reason) from error
    # Not tried by opening it: to close a file gives up all the locks that this process has on it.
    if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        raise InvalidInput("store", str(path), "give the path of a file that you may write")
    if (names := path.stat().st_nlink) > 1:
        reason = (
            f"this file has {names} names (hard links), and neither a lock nor SQLite's log beside "
            "one of them guards the others: remove all names but one"
        )
        raise InvalidInput("store", str(path), reason)
    connection = connected(path)
    try:
        _migrate(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date, one transaction per step; refuse a file that is not ours."""
    steps = steps_of("sqlite")
    try:
        known = _version(connection, path)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        reason = "this is not a SQLite database: give the path of another file, or of a new one"
        raise InvalidInput("store", str(path), reason) from error
    if known > max(steps):
        raise InvalidInput("store", str(path), NEWER)
    for number in range(known + 1, max(steps) + 1):
        with transaction(connection):
            if _version(connection, path) >= number:  # another process was faster
                continue
            for statement in _statements(steps[number]):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {number}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Return how many migrations have been applied, 0 for an empty file."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION and (application or tables):
        reason = (
            "another program's database is there: give the path of another file, or of a new one"
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
