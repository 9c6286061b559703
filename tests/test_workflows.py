"""What the workflows may do and may not. Whether GitHub runs them as meant, only GitHub can show."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import repository
import yaml

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
# All that a job may ask for beyond reading the code, and why.
RIGHTS = {
    ("ci", "not-validated"): {"statuses": "write"},
    ("gpu", "report"): {"statuses": "write"},
    ("pages", "build"): {"contents": "read", "pages": "read"},
    ("pages", "deploy"): {"pages": "write", "id-token": "write"},
}


def load(path: Path) -> dict[str, Any]:
    """A workflow. YAML 1.1 reads the key `on` as true."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    workflow["on"] = workflow.pop(True)
    return workflow


WORKFLOWS = {path.stem: load(path) for path in FILES}
JOBS = [(name, job) for name, workflow in WORKFLOWS.items() for job in workflow["jobs"]]
every_workflow = pytest.mark.parametrize("name", WORKFLOWS)
every_job = pytest.mark.parametrize(("name", "job"), JOBS)


def text(name: str) -> str:
    return (FOLDER / f"{name}.yml").read_text(encoding="utf-8")


def commands(name: str, job: str) -> str:
    return "\n".join(step.get("run", "") for step in WORKFLOWS[name]["jobs"][job]["steps"])


def test_the_four_workflows_are_there_and_no_other() -> None:
    assert set(WORKFLOWS) == {"ci", "pages", "gpu", "colab"}


@every_workflow
def test_every_action_is_pinned_by_its_commit_with_the_version_behind_it(name: str) -> None:
    uses = re.findall(r"^ *(?:- )?(uses:.*)", text(name), re.MULTILINE)
    assert uses
    assert [line for line in uses if not PINNED.fullmatch(line)] == []


def test_one_action_has_one_version_everywhere() -> None:
    uses = re.findall(r"uses: (\S+)@(\w+) # (\S+)", "\n".join(map(text, WORKFLOWS)))
    assert len({action for action, _, _ in uses}) == len(set(uses))


@every_workflow
def test_what_holds_for_all_jobs_is_reading_the_code(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}


@every_job
def test_a_job_has_no_right_that_it_does_not_use(name: str, job: str) -> None:
    assert WORKFLOWS[name]["jobs"][job].get("permissions") == RIGHTS.get((name, job))


@every_job
def test_a_job_that_may_write_does_not_fetch_the_code(name: str, job: str) -> None:
    if "write" in RIGHTS.get((name, job), {}).values():
        assert "actions/checkout" not in json.dumps(WORKFLOWS[name]["jobs"][job])


@every_job
def test_the_code_is_fetched_without_leaving_a_token_behind(name: str, job: str) -> None:
    for step in WORKFLOWS[name]["jobs"][job]["steps"]:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@every_job
def test_every_job_has_a_limit_of_two_hours_or_less(name: str, job: str) -> None:
    assert 0 < WORKFLOWS[name]["jobs"][job]["timeout-minutes"] <= 120


@every_workflow
def test_every_workflow_says_what_becomes_of_two_runs_at_once(name: str) -> None:
    concurrency = WORKFLOWS[name]["concurrency"]
    assert concurrency["group"].startswith(name)
    assert isinstance(concurrency["cancel-in-progress"], bool)


@every_workflow
def test_no_secret_is_needed_and_no_foreign_text_reaches_a_shell(name: str) -> None:
    assert "secrets." not in text(name)
    for job in WORKFLOWS[name]["jobs"]:
        assert "${{" not in commands(name, job)  # a value comes through the environment, never as code


def test_only_ci_runs_for_pull_requests_and_none_with_the_rights_of_the_target() -> None:
    for name, workflow in WORKFLOWS.items():
        assert set(workflow["on"]) <= {"push", "pull_request", "schedule", "workflow_dispatch"}
        assert ("pull_request" in workflow["on"]) == (name == "ci")


def test_the_gpu_runner_is_asked_for_in_one_job_alone_and_only_if_there_is_one() -> None:
    asked = [
        (name, job) for name, job in JOBS if "GPU_RUNNER" in str(WORKFLOWS[name]["jobs"][job]["runs-on"])
    ]
    assert asked == [("gpu", "validate")]
    assert WORKFLOWS["gpu"]["jobs"]["validate"]["if"] == "vars.GPU_RUNNER != ''"
    hosted = {WORKFLOWS[name]["jobs"][job]["runs-on"] for name, job in JOBS if (name, job) != asked[0]}
    assert hosted == {"ubuntu-24.04"}


def test_without_a_gpu_the_run_is_not_green_and_the_commit_says_so() -> None:
    for job in WORKFLOWS["gpu"]["jobs"].values():
        assert "vars.GPU_RUNNER != ''" in job["if"]  # all of them skipped: the run is, too
    assert "'Not validated on GPU'" in WORKFLOWS["gpu"]["jobs"]["validate"]["name"]
    job = WORKFLOWS["ci"]["jobs"]["not-validated"]
    assert "if" not in job
    assert job["steps"][-1]["if"] == "github.event_name != 'pull_request' && vars.GPU_RUNNER == ''"
    assert "state=pending" in job["steps"][-1]["run"]
    assert "not validated on GPU" in job["steps"][-1]["run"]


def test_pages_are_published_from_main_if_asked_for_after_every_test() -> None:
    jobs = WORKFLOWS["pages"]["jobs"]
    assert jobs["build"]["if"] == "vars.PAGES == 'true' && github.ref == 'refs/heads/main'"
    assert jobs["deploy"]["needs"] == "build"
    assert "if" not in jobs["deploy"]
    steps = [step.get("uses", step.get("run", "")) for step in jobs["build"]["steps"]]
    assert steps[-2] == "make test"
    assert steps[-1].startswith("actions/upload-pages-artifact@")


def test_ci_runs_what_the_script_for_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    targets = re.findall(r"^make \w+$", script, re.MULTILINE)
    assert targets
    assert re.findall(r"^make \w+$", commands("ci", "book"), re.MULTILINE) == targets
    assert "find_chromium" in commands("ci", "book")


def test_the_lowest_versions_are_tried_on_the_lowest_python_with_the_same_torch_but_for_cuda() -> None:
    steps = WORKFLOWS["ci"]["jobs"]["lowest"]["steps"]
    pythons = [step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", "")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [f">={python}" for python in pythons] == [project["requires-python"]]
    *_, torch, tests = filter(None, commands("ci", "lowest").splitlines())
    assert "pip install --index-url https://download.pytorch.org/whl/cpu " in torch
    assert """ "$(python scripts/lowest.py | grep '^torch==')\"""" in torch
    assert tests == "make lowest"


def test_the_workflows_call_targets_and_scripts_that_exist() -> None:
    called = "\n".join(commands(name, job) for name, job in JOBS)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"\bmake (\w+)", called)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for script in set(re.findall(r"scripts/[\w.]+", called)):
        assert (ROOT / script).is_file(), script


def test_in_colab_the_first_cells_install_is_run_with_another_address_only() -> None:
    cell = repository.FETCH.strip().removeprefix("%")
    script = (ROOT / "scripts" / "colab.sh").read_text(encoding="utf-8")
    expected = cell.replace("git+https://github.com/{name}@v{version}", "file://$work/course")
    assert expected != cell
    assert f"python3 -m {expected}\n" in script
    assert (ROOT / "scripts" / "colab.sh").stat().st_mode & stat.S_IXUSR


def test_every_variable_is_in_the_table_of_what_a_copy_must_set() -> None:
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    variables = set(re.findall(r"vars\.(\w+)", "\n".join(map(text, WORKFLOWS))))
    assert variables == {"GPU_RUNNER", "PAGES"}
    for variable in variables:
        assert f"variable `{variable}`" in table


def test_the_container_for_readers_is_the_python_of_the_pins_with_the_port_of_the_site() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert container["image"] == "mcr.microsoft.com/devcontainers/python:1-3.11-bookworm"
    assert container["postCreateCommand"] == "make setup"
    assert container["forwardPorts"] == [8000]
    assert "PORT ?= 8000" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "ms-toolsai.jupyter" in container["customizations"]["vscode"]["extensions"]
