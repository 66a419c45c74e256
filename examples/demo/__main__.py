"""`python -m examples.demo`: see `--help`."""

import os
import sys

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentstore.settings")
# The demo is reached at its own address, wherever this installation may be published.
os.environ.pop("AGENTSTORE_PUBLIC_URL", None)
django.setup()

from examples.demo.play import main  # noqa: E402  models can be imported only now

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
