"""Backups: launching runs, what comes of them, and what is kept."""
