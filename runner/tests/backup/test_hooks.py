"""Commands around the work: defined here, named by the server, limited in time, and those afterwards always run."""

import time
from pathlib import Path

import pytest
from agentstore_runner.backup import configuration
from agentstore_runner.backup.hooks import Around
from agentstore_runner.backup.session import SettledError
from agentstore_runner.contract.backup import Hooks
from lab import Bell


class Machine:
    """A machine whose commands write down that they ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran = folder / "ran"
        self.ran.touch()
        self.scripts: dict[str, str] = {}
        self.timeout_s = 60

    def around(self, before: list[str], after: list[str], bell: Bell | None = None) -> Around:
        text = "".join(
            f"[hooks.{name}]\ncommand = {['sh', '-c', f'echo {name} >> {self.ran}; {script}']}\n"
            f"timeout_s = {self.timeout_s}\n"
            for name, script in self.scripts.items()
        )
        file = self.folder / "backups.toml"
        file.write_text(text)
        file.chmod(0o600)
        environ = {"AGENTSTORE_RUNNER_CONFIG": str(self.folder), "PATH": "/usr/bin:/bin", "UAT_SECRET": "hidden-value"}
        hooks = Hooks(tuple(before), tuple(after))
        return Around(hooks, configuration.read(environ), self.folder, bell or Bell(), environ)

    def order(self) -> list[str]:
        return self.ran.read_text().split()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_commands_run_before_and_after_the_work_and_their_output_is_kept(machine: Machine) -> None:
    machine.scripts = {"dump": "echo dumped; env", "start": "echo started >&2"}
    around = machine.around(["dump"], ["start"])

    with around.work(), machine.ran.open("a") as ran:
        ran.write("work\n")

    assert machine.order() == ["dump", "work", "start"]
    assert [(one["name"], one["when"], one["exit_code"], one["timed_out"]) for one in around.ran] == [
        ("dump", "before", 0, False),
        ("start", "after", 0, False),
    ]
    assert "dumped" in around.ran[0]["output"]
    assert around.ran[1]["output"] == "started"
    assert "hidden-value" not in around.ran[0]["output"]


def test_a_command_that_fails_before_the_work_prevents_it_and_those_afterwards_run(machine: Machine) -> None:
    machine.scripts = {"dump": "echo no disk; exit 3", "never": "true", "start": "true"}
    around = machine.around(["dump", "never"], ["start"])

    with pytest.raises(SettledError) as settled, around.work():
        pytest.fail("the work began")

    outcome = settled.value.outcome
    assert (outcome.status, outcome.cause and outcome.cause.failure_class) == ("failed", "source")
    assert (outcome.code, machine.order()) == ("source_command_failed", ["dump", "start"])
    assert "exit code 3: no disk" in (outcome.message or "")


def test_commands_afterwards_run_whatever_happens_to_the_work(machine: Machine) -> None:
    machine.scripts = {"start": "true"}

    with pytest.raises(ZeroDivisionError), machine.around([], ["start"], Bell(lambda bell: True)).work():
        raise ZeroDivisionError

    assert machine.order() == ["start"]


def test_a_command_that_fails_afterwards_spoils_no_work_and_is_told(machine: Machine) -> None:
    machine.scripts = {"start": "exit 4", "next": "true"}
    around = machine.around([], ["start", "next"])

    with around.work():
        pass

    assert machine.order() == ["start", "next"]
    assert around.complaints == ["the command start after the work ended with exit code 4"]


def test_a_command_that_takes_too_long_is_ended_with_what_it_started(machine: Machine) -> None:
    machine.scripts = {"dump": f"sleep 600 & echo $! > {machine.folder}/pid; wait"}
    machine.timeout_s = 1

    with pytest.raises(SettledError, match="took too long"), machine.around(["dump"], []).work():
        pytest.fail("the work began")

    pid = int((machine.folder / "pid").read_text())
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "(sleep) Z" not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < until, "what the command started is still there"


@pytest.mark.parametrize(("reason", "status"), [("cancel", "cancelled"), ("shutdown", "failed")])
def test_a_wish_to_stop_ends_a_command_before_the_work(machine: Machine, reason: str, status: str) -> None:
    machine.scripts = {"dump": "exec sleep 600"}
    bell = Bell(lambda bell: "dump" in machine.order(), reason)

    with pytest.raises(SettledError) as settled, machine.around(["dump"], [], bell).work():
        pytest.fail("the work began")

    assert settled.value.outcome.status == status


def test_a_name_that_is_not_defined_here_is_refused_before_anything_runs(machine: Machine) -> None:
    machine.scripts = {"dump": "true"}

    with pytest.raises(SettledError, match="defines no command start"), machine.around(["dump"], ["start"]).work():
        pytest.fail("the work began")

    assert machine.order() == []
