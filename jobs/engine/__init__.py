"""Leases over PostgreSQL rows: one engine for every table whose rows are claimed, kept alive, finished and reaped."""
