"""The jobs in benchmarks/jobs.yaml have the options of their committed runs; the site prints them as commands."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from duetto.storage import user_code
from duetto.tools.cli.train import experiment

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RESULTS = BENCHMARKS / "results" / "learning"
CONTENT: dict[str, Any] = yaml.safe_load((BENCHMARKS / "jobs.yaml").read_text("utf-8"))
JOBS: dict[str, dict[str, Any]] = CONTENT["jobs"]
JOBS_WITH_RUNS = [name for name in JOBS if any(RESULTS.glob(f"{name}-s[0-9]*/config.yaml"))]
# Options without effect in BC. Their defaults changed after some of the runs.
UNUSED_OPTIONS = {"bc": {"priority_exponent", "importance_exponent", "importance_anneal_samples"}}


def plain(value: Any) -> Any:
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("name", JOBS_WITH_RUNS)
def test_job_has_the_options_of_its_runs(name: str):
    given = shlex.split(JOBS[name]["train"])
    if "--cluster" in given:  # cluster options are not part of an experiment
        given = given[: given.index("--cluster")]
    now = experiment(name, given, [0]).spec
    left = {"name"} | UNUSED_OPTIONS.get(now.algorithm.name(), set())
    options = {one.name: plain(getattr(now.algorithm, one.name)) for one in dataclasses.fields(now.algorithm)}
    for path in sorted(RESULTS.glob(f"{name}-s[0-9]*/config.yaml")):
        made = yaml.safe_load(path.read_text("utf-8"))
        known = {key for key, value in made["algorithm"].items() if value is not None and key in options} - left
        assert {key: options[key] for key in known} == {key: plain(made["algorithm"][key]) for key in known}
        assert made["environment"]["id"] == now.environment
        assert (
            made["environment"]["options"].items() <= now.environment_options.items()
        )  # some options were added later
        assert made["run"]["steps"] == now.options.steps


def test_every_committed_run_has_a_job():
    assert {folder.name.rpartition("-s")[0] for folder in RESULTS.glob("*-s[0-9]*") if folder.is_dir()} == set(
        JOBS_WITH_RUNS
    )


@pytest.mark.parametrize("command", CONTENT["demonstrations"].values())
def test_demonstration_expert_is_a_job_or_an_example(command: str):
    arguments = shlex.split(command)
    expert = arguments[arguments.index("--expert") + 1]
    if expert.startswith("{runs}/"):
        assert expert.removeprefix("{runs}/").rpartition("-s")[0] in JOBS
        return
    assert callable(user_code.load(str(BENCHMARKS.parent / expert), "expert")[0])
    assert "--only-successes" in arguments
