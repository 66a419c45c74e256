"""The runner as a workflow run starts it: a real process, a real server, and the stand-in for GitHub."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytest_django import Settings

from agentstore.config import REPOSITORY
from jobs.models import AgentJob, AgentToken, GithubTrust
from tests.factories import AgentJobFactory
from tests.github.provider import AUDIENCE, REQUEST_KEY, Provider

pytestmark = pytest.mark.django_db(transaction=True)


def asked(provider: Provider) -> dict[str, str]:
    """What GitHub gives a run that may ask for tokens."""
    return {
        "GITHUB_ACTIONS": "true", "ACTIONS_ID_TOKEN_REQUEST_URL": f"{provider.url}/token?api-version=2.0",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": REQUEST_KEY,
    }  # fmt: skip


def run(provider: Provider, server: str, folder: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)} | asked(provider) | more
    command = [
        sys.executable, "-m", "agentstore_runner", "run", "--once", "--github", "--github-audience", AUDIENCE,
        "--server", server, "--state", str(folder), "--kinds", "uat.quick-task", "--no-tasks", *words,
    ]  # fmt: skip
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_run_without_a_stored_secret_does_the_job_it_was_started_for(
    provider: Provider, trust: GithubTrust, live_server: Any, tmp_path: Path
) -> None:
    other = AgentJobFactory(agent=trust.agent, kind="uat.quick-task", spec={}, priority=9)
    job = AgentJobFactory(agent=trust.agent, kind="uat.quick-task", spec={"version": 1})
    ended = run(provider, live_server.url, tmp_path, "--job-id", str(job.pk))
    job, other = (AgentJob.objects.get(pk=one.pk) for one in (job, other))
    assert (ended.returncode, job.status, other.status) == (1, "failed", "queued"), ended.stderr
    assert job.failure_class == "configuration"  # the spec is none, and says so
    assert job.run_ref == f"{provider.url}/octo/shop/actions/runs/1658821493/attempts/2"
    first, _, rest = ended.stdout.partition("\n")
    assert first.startswith("::add-mask::ags_r_")
    bearer = first.removeprefix("::add-mask::")
    assert bearer[:12] == AgentToken.objects.get().prefix
    for secret in (bearer, REQUEST_KEY):
        assert secret not in rest + ended.stderr


def test_the_workflow_of_the_examples_does_its_job_in_its_own_shell(
    provider: Provider, trust: GithubTrust, live_server: Any, tmp_path: Path, settings: Settings
) -> None:
    settings.GITHUB_AUDIENCE = live_server.url
    workflow = yaml.safe_load((REPOSITORY / "examples/github/agentstore.yml").read_text())
    assert workflow["permissions"] == {}
    work = workflow["jobs"]["work"]
    assert work["permissions"] == {"id-token": "write"}
    job = AgentJobFactory(agent=trust.agent, kind="uat.quick-task", spec={"version": 1})
    (tmp_path / "runner-venv/bin").mkdir(parents=True)
    (tmp_path / "runner-venv/bin/agentstore-runner").symlink_to(Path(sys.executable).parent / "agentstore-runner")
    given = {"inputs.job_id": str(job.pk), "vars.AGENTSTORE_URL": live_server.url, "vars.AGENTSTORE_RUNNER": ""}
    said = {name: given[value[3:-2].strip()] for name, value in work["env"].items()}
    step = work["steps"][-1]["run"]
    assert step.startswith("exec ")  # else no signal of a cancel would reach the runner
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | asked(provider) | said
    ended = subprocess.run(
        ["bash", "-e", "-c", step], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    job = AgentJob.objects.get(pk=job.pk)
    assert (ended.returncode, job.status) == (1, "failed"), ended.stderr


def test_a_run_that_nobody_trusts_ends_as_refused_and_says_where_to_look(
    provider: Provider, trust: GithubTrust, live_server: Any, tmp_path: Path
) -> None:
    provider.run = {"repository_id": "75"}
    ended = run(provider, live_server.url, tmp_path)
    assert ended.returncode == 3
    assert "no rule trusts this run" in ended.stderr
    assert "Reference: " in ended.stderr


def test_an_outage_of_github_is_told_from_a_refusal(
    provider: Provider, trust: GithubTrust, live_server: Any, tmp_path: Path
) -> None:
    provider.status = 500
    assert run(provider, live_server.url, tmp_path).returncode == 75


def test_a_run_that_may_not_ask_for_tokens_is_told_which_permission_it_lacks(
    provider: Provider, trust: GithubTrust, live_server: Any, tmp_path: Path
) -> None:
    ended = run(provider, live_server.url, tmp_path, ACTIONS_ID_TOKEN_REQUEST_URL="")
    assert (ended.returncode, "id-token: write" in ended.stderr) == (2, True)
    ended = run(provider, live_server.url, tmp_path, ACTIONS_ID_TOKEN_REQUEST_TOKEN="wrong-key-of-a-run")
    assert (ended.returncode, "status 401" in ended.stderr) == (2, True)
    ended = run(provider, live_server.url, tmp_path, ACTIONS_ID_TOKEN_REQUEST_URL="http://github.example/token")
    assert (ended.returncode, "https" in ended.stderr) == (2, True)
