"""The demonstration: a small shop, simulated visitors, and what the service learns of them."""

FASTEST = 500
"""The most visitors per second that the slider allows."""

PACE = 60
"""Visitors per second to begin with."""
