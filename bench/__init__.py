"""Measured speed: ratios taken inside one run, on one durable PostgreSQL that the bench starts itself."""
