import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agentstore_runner.uat import chromium
from harness import Process, Runner
from standin import TOKEN, StandIn
from wire import serving

HERE = Path(__file__).parent


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving() as standin:
        yield standin


@pytest.fixture
def runner(server: StandIn, tmp_path: Path) -> Iterator[Runner]:
    runner = Runner(server, tmp_path / "state")
    yield runner
    runner.shutdown.request(15)


@pytest.fixture
def browser() -> None:
    if chromium.find(os.environ) is None:
        pytest.skip(f"no Chromium on this machine; {chromium.INSTALL_HINT}")


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that makes the test handlers an installed distribution."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "worker-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: worker\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[agentstore.handlers]\ntest = worker:Worker\n")
    return folder


@pytest.fixture
def launch(server: StandIn, site: Path, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start `agentstore-runner` against the stand-in, with the token in a file or in the environment."""
    started: list[Process] = []
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN + "\n")
    token_file.chmod(0o600)

    def start(command: str, *arguments: str, token: str = "file", **environment: str) -> Process:
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment = {**inherited, "PYTHONPATH": f"{site}:{HERE}", **environment}
        options = ["--server", server.url, "--state", str(tmp_path / "state")]
        if token == "file":
            options += ["--token-file", str(token_file)]
        else:
            environment["AGENTSTORE_TOKEN"] = TOKEN
        process = Process([command, *options, *arguments], environment, tmp_path / f"log-{len(started)}")
        started.append(process)
        return process

    yield start
    for process in started:
        process.popen.kill()
        process.popen.wait()


@pytest.fixture(autouse=True)
def quiet_logger() -> Iterator[None]:
    """Give every test the runner's logger as it was: the command line configures it for the whole process."""
    logger = logging.getLogger("agentstore_runner")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)
