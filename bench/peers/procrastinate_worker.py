"""procrastinate's own worker, one job at a time, behind the protocol of bench.worker; DSN is the first argument."""

import asyncio
import json
import sys
import time

import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=sys.argv[1], min_size=1, max_size=4))


@app.task(name="noop")
async def noop(path: str) -> str:
    """Do nothing, successfully."""
    return path


async def main() -> None:
    """Work until standard input ends."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for line in sys.stdin:
            await noop.batch_defer_async(*[{"path": "/"} for _ in range(int(line))])
            print("armed", flush=True)
            sys.stdin.readline()
            began, cpu = time.monotonic(), time.process_time()
            await app.run_worker_async(wait=False, concurrency=1, listen_notify=False, install_signal_handlers=False)
            used = {"cpu": (time.process_time() - cpu) * 1e6, "seconds": time.monotonic() - began}
            print(json.dumps(used), flush=True)


asyncio.run(main())
