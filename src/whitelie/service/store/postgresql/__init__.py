"""A store in PostgreSQL, for many servers."""
