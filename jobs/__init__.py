"""The job store: queues, leases, governance, and the doors to them."""
