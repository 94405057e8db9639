"""The secrets that seal tokens: from the environment, or a file that only its owner reads."""

import os
import secrets
from pathlib import Path

from whitelie.errors import InvalidInput

VARIABLE = "WHITELIE_SECRET"
SHORTEST = 32


def token_secrets(file: Path) -> list[bytes]:
    """Return all secrets, the one that seals first.

    The environment may give several, parted by commas; without it they are the lines of the file,
    which is made if it is not there.
    """
    given = os.environ.get(VARIABLE)
    if given is None and not file.exists():
        rotate(file)
    text = file.read_text(encoding="ascii").split() if given is None else given.split(",")
    for secret in text:
        if len(secret) < SHORTEST:
            name = VARIABLE if given is not None else str(file)
            raise InvalidInput(name, "(not shown)", f"a secret has at least {SHORTEST} characters")
    return [secret.encode() for secret in text]


def file_beside(database: Path) -> Path:
    """Return where the secrets of a SQLite database are kept."""
    return database.with_name(f"{database.name}.secret")


def rotate(file: Path) -> None:
    """Put a new secret before those of the file; old tokens stay good until they expire."""
    kept = file.read_text(encoding="ascii") if file.exists() else ""
    write_private(file, f"{secrets.token_urlsafe(32)}\n{kept}")


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    beside = file.with_name(f"{file.name}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as written:
        written.write(text)
        written.flush()
        os.fsync(descriptor)
    beside.replace(file)
