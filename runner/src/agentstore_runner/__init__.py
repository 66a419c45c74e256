"""The agentstore runner: it claims one job at a time over HTTPS, does the work and reports what happened."""

__version__ = "1.0.0"
