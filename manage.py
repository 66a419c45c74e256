#!/usr/bin/env python
"""Django's command line; without DATABASE_URL the embedded PostgreSQL runs as long as the command does."""

import os
import sys
from contextlib import nullcontext

from django.core.management import execute_from_command_line

from agentstore import embedded_postgres
from agentstore.config import config

WITHOUT_DATABASE = frozenset({
    "", "check", "collectstatic", "compilemessages", "diffsettings", "findstatic",
    "help", "makemessages", "spectacular", "version", "--help", "-h", "--version",
})  # fmt: skip


def main() -> None:
    """Run the command that the arguments name."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentstore.settings")
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    needs_server = not config.database_url and command not in WITHOUT_DATABASE and "--help" not in sys.argv
    try:
        with embedded_postgres.server(config.home) if needs_server else nullcontext():
            execute_from_command_line(sys.argv)
    except embedded_postgres.EmbeddedPostgresError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
