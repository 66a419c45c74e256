"""Other queues, each by its own worker."""
