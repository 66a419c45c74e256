"""The whole product in one command: server, maintenance, a runner, and two jobs against the demo shop."""
