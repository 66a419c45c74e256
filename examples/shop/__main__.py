"""Run the shop: `python -m examples.shop --port 8999`; port 0 takes a free one, `--port-file` tells which."""

import argparse
import contextlib
import signal
import sys
from pathlib import Path

from examples.shop.server import ShopServer


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m examples.shop", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8999)
    parser.add_argument("--port-file", type=Path, help="write the port here once the shop listens")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    try:
        server = ShopServer((options.host, options.port))
    except OSError as error:
        print(f"the shop cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return 1
    with server, contextlib.suppress(KeyboardInterrupt):
        if options.port_file:
            # Written aside and moved, so that a reader never sees half a number.
            draft = options.port_file.with_suffix(".draft")
            draft.write_text(str(server.server_port))
            draft.replace(options.port_file)
        print(f"the demo shop is at http://{options.host}:{server.server_port}/", flush=True)
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
