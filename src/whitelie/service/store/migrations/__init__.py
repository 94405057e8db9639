"""Migrations: numbered steps, one file each, from an empty store to the newest schema.

A step for PostgreSQL never takes away what the version before it reads or writes, so that servers
of two versions can work side by side while they are replaced one by one.
"""

from importlib.resources import files

NEWER = "a newer whitelie has written this database: update whitelie to use it"


def steps_of(kind: str) -> dict[int, str]:
    """Return the SQL of every step of a kind of store, by its number."""
    folder = files(__name__) / kind
    scripts = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return {int(file.name[:4]): file.read_text(encoding="utf-8") for file in scripts}
