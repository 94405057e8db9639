"""The secrets that seal tokens: from the environment, or a file that only its owner reads."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from tempfile import mkstemp

from whitelie.errors import InvalidInput

VARIABLE = "WHITELIE_SECRET"
SHORTEST_SECRET = 32


def secrets_for(database: Path | None) -> Callable[[], list[bytes]]:
    """Return a function that reads the secrets.

    Those of a SQLite database lie in a file beside it, which is written when they are first needed.
    Servers that share a database must be given the same secrets by the environment.
    """
    if database is None:
        if not is_given():
            reason = (
                "all servers of a PostgreSQL store need the same secret: set this variable to at "
                f"least {SHORTEST_SECRET} random characters"
            )
            raise InvalidInput(VARIABLE, None, reason)
        return lambda: token_secrets(None)
    file = file_beside(database)
    if not is_given() and not file.exists():
        rotate(file)
    return lambda: token_secrets(file)


def token_secrets(file: Path | None) -> list[bytes]:
    """Return all secrets; the first seals new tokens.

    The environment may give several, separated by commas; else they are the lines of the file.
    """
    if file is None or is_given():
        name, lines = VARIABLE, os.environ[VARIABLE].split(",")
    else:
        text = file.read_text(encoding="utf-8", errors="replace")
        name, lines = str(file), text.splitlines()
    kept = [secret.strip() for secret in lines if secret.strip()]
    if not kept or any(len(secret) < SHORTEST_SECRET or not secret.isascii() for secret in kept):
        reason = f"give at least one secret, each of at least {SHORTEST_SECRET} ASCII characters"
        raise InvalidInput(name, "(not shown)", reason)
    return [secret.encode() for secret in kept]


def is_given() -> bool:
    """Whether the environment gives the secrets, so that the file is not read."""
    return VARIABLE in os.environ


def file_beside(database: Path) -> Path:
    """Return where the secrets of a SQLite database are kept: beside the file, not beside a link.

    Those that an earlier version has put beside the link are copied.
    """
    given, resolved = database, database.resolve()
    beside_link = given.with_name(f"{given.name}.secret")
    beside_file = resolved.with_name(f"{resolved.name}.secret")
    if not beside_file.exists() and beside_link.exists():
        write_private(beside_file, beside_link.read_text(encoding="ascii"))
    return beside_file


def rotate(file: Path) -> None:
    """Put a new secret before those of the file; old tokens stay good until they expire."""
    kept = file.read_text(encoding="ascii") if file.exists() else ""
    write_private(file, f"{secrets.token_urlsafe(32)}\n{kept}")


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all; its owner stays."""
    descriptor, beside = mkstemp(prefix=f"{file.name}.", dir=file.parent)  # for its owner only
    with os.fdopen(descriptor, "w", encoding="ascii") as written:
        if file.exists() and file.stat().st_uid != os.geteuid():
            os.fchown(descriptor, file.stat().st_uid, file.stat().st_gid)
        written.write(text)
        written.flush()
        os.fsync(descriptor)
    Path(beside).replace(file)
