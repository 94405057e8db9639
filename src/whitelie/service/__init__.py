"""The private decision service: it decides, learns from flipped bits, and keeps counts only."""

MOST_EPSILON = 8.0
"""The most that a report may reveal, unless the operator says otherwise."""

PER_ADDRESS = 120
"""Decisions per minute and client address, unless the operator says otherwise."""

PER_KEY = 6000
"""Decisions per minute and publishable key, unless the operator says otherwise."""
