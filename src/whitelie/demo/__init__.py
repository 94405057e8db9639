"""The demonstration: a small shop, simulated visitors, and what the service learns about them."""

MAX_PACE = 500
"""In visitors per second, at the end of the slider."""

DEFAULT_PACE = 60
"""In visitors per second."""
