"""Backups and restores with restic: tasks of the server, done with what this machine alone knows."""
