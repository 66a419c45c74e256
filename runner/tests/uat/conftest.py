import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[3])]

from workbench import Bench, Site, site  # noqa: E402 (needs the path above)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def web() -> Iterator[Site]:
    with site() as server:
        yield server


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, {})


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The demo shop as a visitor starts it; yields its address."""
    port_file = tmp_path_factory.mktemp("shop") / "port"
    command = [sys.executable, "-m", "examples.shop", "--port", "0", "--port-file", str(port_file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "the demo shop is at" in process.stdout.readline()
        yield f"http://127.0.0.1:{port_file.read_text()}"
        process.terminate()
        assert process.wait(10) == 0
