"""Migrations: numbered files of SQL that lead from an empty store to the newest schema.

A migration for PostgreSQL never removes what the version before it reads or writes, so that servers
of two versions can work side by side during an upgrade.
"""

from importlib.resources import files

NEWER_SCHEMA = "a newer whitelie has written this database: update whitelie to use it"


def migrations_of(kind: str) -> dict[int, str]:
    """Return the SQL of every migration of a kind of store, by its number."""
    folder = files(__name__) / kind
    scripts = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return {int(file.name[:4]): file.read_text(encoding="utf-8") for file in scripts}
