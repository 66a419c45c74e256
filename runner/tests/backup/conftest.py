import shutil
import subprocess
from pathlib import Path

import pytest
from lab import INSTALL, PASSWORD, Lab


@pytest.fixture(scope="session")
def empty_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository without snapshots, made once: the key derivation costs a second."""
    if shutil.which("restic") is None:
        pytest.skip(INSTALL)
    path = tmp_path_factory.mktemp("restic") / "repository"
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "RESTIC_PASSWORD": PASSWORD, "HOME": str(path.parent)}
    subprocess.run(["restic", "init", "-r", str(path)], env=environ, check=True, capture_output=True)
    return path


@pytest.fixture
def lab(tmp_path: Path, empty_repository: Path) -> Lab:
    return Lab(tmp_path, shutil.copytree(empty_repository, tmp_path / "repository"))
