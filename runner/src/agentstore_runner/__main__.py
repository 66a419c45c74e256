"""`python -m agentstore_runner` is the command `agentstore-runner`."""

from agentstore_runner.cli import main

main(prog_name="agentstore-runner")
