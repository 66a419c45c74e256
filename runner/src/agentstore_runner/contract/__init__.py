"""What runner and server agree on, in plain Python: no Django, no third-party package."""
