"""Experiments: definition and changes, snapshots of counts, results, privacy statement."""
