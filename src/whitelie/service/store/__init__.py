"""What is remembered: one contract, and a store for SQLite and for PostgreSQL."""
