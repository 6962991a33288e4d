"""A job of benchmarks/jobs.yaml gives what its committed runs were made with: the site prints it as their command."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from duetto.storage import user_code
from duetto.tools.cli.train import setting

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RESULTS = BENCHMARKS / "results" / "learning"
CONTENT: dict[str, Any] = yaml.safe_load((BENCHMARKS / "jobs.yaml").read_text("utf-8"))
JOBS: dict[str, dict[str, Any]] = CONTENT["jobs"]
MADE = [name for name in JOBS if any(RESULTS.glob(f"{name}-s[0-9]*/config.yaml"))]
# Options of priorities, which BC's runs do not have: their defaults were others when some of the runs were made.
UNUSED = {"bc": {"priority_exponent", "importance_exponent", "importance_anneal_samples"}}


def plain(value: Any) -> Any:
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("name", MADE)
def test_a_job_is_what_its_runs_were_made_with(name: str):
    given = shlex.split(JOBS[name]["train"])
    if "--cluster" in given:  # of `train` alone, and behind it are its own options
        given = given[: given.index("--cluster")]
    now = setting(name, given, [0]).spec
    left = {"name"} | UNUSED.get(now.algorithm.name(), set())
    options = {one.name: plain(getattr(now.algorithm, one.name)) for one in dataclasses.fields(now.algorithm)}
    for path in sorted(RESULTS.glob(f"{name}-s[0-9]*/config.yaml")):
        made = yaml.safe_load(path.read_text("utf-8"))
        known = {key for key, value in made["algorithm"].items() if value is not None and key in options} - left
        assert {key: options[key] for key in known} == {key: plain(made["algorithm"][key]) for key in known}
        assert made["environment"]["id"] == now.environment
        assert made["environment"]["options"].items() <= now.environment_options.items()  # some came later
        assert made["run"]["steps"] == now.options.steps


def test_every_committed_run_is_of_a_job():
    assert {folder.name.rpartition("-s")[0] for folder in RESULTS.glob("*-s[0-9]*") if folder.is_dir()} == set(MADE)


@pytest.mark.parametrize("command", CONTENT["demonstrations"].values())
def test_the_expert_of_demonstrations_is_a_run_of_a_job_or_in_the_examples(command: str):
    arguments = shlex.split(command)
    expert = arguments[arguments.index("--expert") + 1]
    if expert.startswith("{runs}/"):
        assert expert.removeprefix("{runs}/").rpartition("-s")[0] in JOBS
        return
    assert callable(user_code.load(str(BENCHMARKS.parent / expert), "expert")[0])
    assert "--only-successes" in arguments
