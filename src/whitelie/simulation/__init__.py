"""Simulations: policies on problems, run in chunks, resumed, summarised and drawn."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Load `simulate` and `simulate_many` when they are first used: reading TOML needs neither."""
    if name in ("simulate", "simulate_many"):
        from whitelie.simulation import work  # noqa: PLC0415 (see above)

        return getattr(work, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
