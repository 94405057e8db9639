"""The figures of the reproduction: panels drawn from results, and computed diagrams."""
