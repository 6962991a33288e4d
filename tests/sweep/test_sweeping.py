"""Sweeps of tiny runs: results, continuation and failures."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import wait_for
from line_environment import Short, Slow
from small_runs import assert_same
from sweepable import RUN, SMALL, Stuck, small

import duetto
from duetto.errors import CheckpointError, DuettoError, EnvironmentFailedError, UsageError
from duetto.runs import pool as jobs
from duetto.runs.pool import ProcessPool
from duetto.runs.run import Run
from duetto.runs.spec import RunSpec
from duetto.storage import signing
from duetto.storage.config import RunOptions
from duetto.storage.run_folder import folder_lock
from duetto.storage.safe_yaml import read_yaml
from duetto.storage.user_code import Origin
from duetto.tools.sweep.api import MAX_NAME, SweepResult, default_name, experiments, listed
from duetto.tools.sweep.sweep import Experiment, runs


def run_sweep(folder: Path, environments: Any = Short, **options: Any) -> SweepResult:
    return duetto.sweep({"small": small()}, environments, output=folder, **{"seeds": 2, "jobs": 2} | RUN | options)


@pytest.fixture(scope="module")
def sweep_result(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    return run_sweep(tmp_path_factory.mktemp("sweeping") / "sweep", seeds=3)


# ---------------------------------------------------------------------------------------------------- results
def test_sweep_run_equals_the_run_of_train(sweep_result: SweepResult, tmp_path: Path):
    assert [run.path.name for run in sweep_result.runs] == [f"small-Short-s{seed}" for seed in range(3)]
    assert [(run.state, run.step) for run in sweep_result.runs] == [("complete", 60)] * 3
    alone = duetto.train(small(), Short, runs_dir=tmp_path, seed=1, **RUN)
    assert_same(Run(sweep_result.runs[1].path, environment=Short), alone)


def test_sweep_writes_interquartile_means_and_curves(sweep_result: SweepResult):
    (result,) = sweep_result.results
    last = [run.mean_return for run in sweep_result.runs]
    assert (result.environment, result.label, result.seeds, result.step) == ("Short", "td3", 3, 60)
    assert result.interquartile_mean == pytest.approx(
        sum(last) / 3
    )  # a quarter of three seeds is less than one: all count
    assert result.low is not None
    assert {run.path.name.rpartition("-s")[0] for run in sweep_result.runs} == {result.name}
    assert min(last) - 1e-9 <= result.low <= result.interquartile_mean <= result.high <= max(last) + 1e-9
    (row,) = csv.DictReader((sweep_result.folder / "results.csv").read_text().splitlines())
    assert float(row["interquartile_mean"]) == result.interquartile_mean
    assert sweep_result.picture == sweep_result.folder / "curves.png"
    assert sweep_result.picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(json.dumps(sweep_result.to_dict()))["results"][0]["low"] == result.low
    assert not list((sweep_result.folder / "logs").iterdir())  # nothing was printed


def test_repeated_sweep_call_trains_only_missing_seeds(sweep_result: SweepResult):
    before = {run.path: (run.path / "metrics.jsonl").stat().st_mtime_ns for run in sweep_result.runs}
    again = run_sweep(sweep_result.folder, seeds=4, threads=2)  # --threads may differ: on JAX it depends on the machine
    assert [run.state for run in again.runs] == ["complete"] * 4
    assert {path: (path / "metrics.jsonl").stat().st_mtime_ns for path in before} == before
    assert again.results[0].seeds == 4


OWN_ENVIRONMENT = """import gymnasium
class Mine(gymnasium.Wrapper):
    def __init__(self): super().__init__(gymnasium.make("Pendulum-v1", max_episode_steps=10))
"""


def test_file_edited_during_sweep_fails_waiting_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs that started before the edit are complete."""
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    (tmp_path / "own.py").write_text(f"import duetto\n{CUSTOM_ALGORITHM}")
    (tmp_path / "there.py").write_text(OWN_ENVIRONMENT)
    start, begun = ProcessPool.start, list[Any]()

    def editing(self: ProcessPool, job: Any) -> None:
        if begun:
            (tmp_path / "there.py").write_text(f"# edited\n{OWN_ENVIRONMENT}")
        begun.append(job)
        start(self, job)

    monkeypatch.setattr(ProcessPool, "start", editing)
    own = {"own": {"algorithm": f"{tmp_path}/own.py:TD3", **SMALL}}
    sweep_result = duetto.sweep(own, f"{tmp_path}/there.py:Mine", seeds=2, jobs=1, output=tmp_path / "sweep", **RUN)
    assert [run.state for run in sweep_result.runs] == ["complete", "failed"]
    assert "there.py:" in sweep_result.failed[0].reason
    assert "was edited while runs that use it were waiting" in sweep_result.failed[0].reason


def test_run_with_other_options_is_refused_with_differences(sweep_result: SweepResult):
    with pytest.raises(
        UsageError,
        match=r"small-Short-s0 was started with other options or files: run.steps was 60, is now 90\. To continue",
    ):
        run_sweep(sweep_result.folder, steps=90)
    with pytest.raises(UsageError, match=r"algorithm.tau was 0.005, is now 0.1"):
        duetto.sweep({"small": duetto.TD3(tau=0.1)}, Short, output=sweep_result.folder, **RUN)


CUSTOM_ALGORITHM = "class TD3(duetto.TD3):\n    pass\n"


def test_edited_user_file_is_refused_for_complete_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A built-in algorithm of the same name is refused too."""
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    file, own = tmp_path / "own.py", {"own": {"algorithm": f"{tmp_path}/own.py:TD3", **SMALL}}
    file.write_text(f"import duetto\n{CUSTOM_ALGORITHM}")

    def again(algorithms: Any = own) -> SweepResult:
        return duetto.sweep(algorithms, "Pendulum-v1", seeds=1, output=tmp_path / "sweep", **RUN)

    assert [run.state for run in again().runs] == ["complete"]
    assert [run.state for run in again().runs] == ["complete"]
    before = Origin.from_dict(read_yaml(tmp_path / "sweep" / "own-Pendulum-v1-s0" / "config.yaml")["algorithm"]["from"])
    file.write_text(f"import duetto  # edited\n{CUSTOM_ALGORITHM}")
    was = rf'own.py:TD3 \(sha256 {before.checksum[:8]}\)", is now "own.py:TD3 \(sha256 '
    with pytest.raises(UsageError, match=was):
        again()
    with pytest.raises(UsageError, match=r'TD3.*, is now "Duetto"\. To continue it, give the same options and '):
        again({"own": small()})
    file.write_text(f"import duetto\n{CUSTOM_ALGORITHM}")
    assert [run.state for run in again().runs] == ["complete"]


@pytest.mark.parametrize("name", [".git", "checkpoints"])
def test_folder_without_config_is_refused_and_kept(tmp_path: Path, name: str):
    """Not even hidden files are deleted."""
    (tmp_path / "small-Short-s0" / name).mkdir(parents=True)
    (tmp_path / "small-Short-s0" / name / "mine").touch()
    with pytest.raises(UsageError, match=r"small-Short-s0 exists and is no run: it has no config\.yaml"):
        run_sweep(tmp_path)
    assert (tmp_path / "small-Short-s0" / name / "mine").exists()


def test_folder_of_run_killed_at_start_is_reused(tmp_path: Path):
    (tmp_path / "small-Short-s0").mkdir()
    for name in (".lock", ".tmp-config.yaml"):
        (tmp_path / "small-Short-s0" / name).touch()
    assert [run.state for run in run_sweep(tmp_path, seeds=1, steps=20).runs] == ["complete"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("name", ["small-Short-s0", ".beginning/small-Short-s0", "logs/small-Short-s0.txt", "hard"])
def test_sweep_follows_no_links(tmp_path: Path, name: str):
    """No run is trained, and no file is created or changed, where a link leads."""
    outside, sweep = tmp_path / "outside", tmp_path / "sweep"
    (outside / "empty").mkdir(parents=True)
    (outside / "mine.txt").write_text("precious")
    link = sweep / ("logs/small-Short-s0.txt" if name == "hard" else name)
    link.parent.mkdir(parents=True)
    if name == "hard":
        os.link(outside / "mine.txt", link)
    else:
        link.symlink_to(outside / ("mine.txt" if link.suffix == ".txt" else "empty"))
    with pytest.raises(DuettoError, match=r"is a link|is a hard link"):
        run_sweep(sweep, seeds=1, steps=20)
    assert not list((outside / "empty").iterdir())
    assert (outside / "mine.txt").read_text() == "precious"


# ---------------------------------------------------------------------------------------------------- continuing
KILLED_SWEEP = """
import sys, duetto
from line_environment import Slow
from sweepable import RUN, small
duetto.sweep({"small": small()}, Slow, seeds=2, jobs=2, output=sys.argv[1], **{**RUN, "steps": 120})
"""


def checkpoint_counts(folder: Path) -> list[int]:
    return [len(list(run.glob("checkpoints/step-*"))) for run in folder.glob("small-Slow-s*")]


def test_killed_sweep_continues_with_the_same_numbers(tmp_path: Path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", KILLED_SWEEP, tmp_path / "sweep"], env=environment)
    wait_for(lambda: sum(made > 0 for made in checkpoint_counts(tmp_path / "sweep")) == 2)
    process.kill()
    process.wait(60)
    options = {"steps": 120}
    assert all(0 < last_checkpoint(tmp_path / "sweep" / f"small-Slow-s{seed}") < 120 for seed in range(2))
    configs = {path: path.stat().st_mtime_ns for path in (tmp_path / "sweep").glob("*/config.yaml")}
    again = run_sweep(tmp_path / "sweep", Slow, **options)
    assert [(run.state, run.step) for run in again.runs] == [("complete", 120)] * 2
    alone = duetto.train(small(), Slow, runs_dir=tmp_path, seed=1, **RUN | options)
    assert_same(Run(again.runs[1].path, environment=Slow), alone)
    assert {path: path.stat().st_mtime_ns for path in configs} == configs  # resumed, not started again
    assert not list(again.folder.glob("*/before*"))


def last_checkpoint(folder: Path) -> int:
    return max(int(path.name[5:]) for path in folder.glob("checkpoints/step-*"))


def test_run_in_use_by_another_process_is_not_started(tmp_path: Path):
    """Both before and after its folder has a config."""
    (planned,) = runs([Experiment(RunSpec(small(), Short, RunOptions(**RUN), name="small"), (0,))], tmp_path)
    claim = tmp_path / jobs.CLAIMS / "small-s0"
    claim.mkdir(parents=True)
    with folder_lock(claim):
        assert jobs.outcome(planned.job)[:2] == ("failed", jobs.IN_USE)
    assert not planned.folder.exists()
    assert jobs.outcome(planned.job) == ("ended", False, [])
    with folder_lock(planned.folder):
        assert jobs.outcome(planned.job)[:2] == ("failed", jobs.IN_USE)
    assert [path.name for path in tmp_path.glob("small*")] == ["small-s0"]  # and no small-s0-2


# ---------------------------------------------------------------------------------------------------- failures
def with_cause(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


DISK_FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DISK_FULL, jobs.HINDERED),
        (with_cause(CheckpointError("The checkpoint cannot be written."), DISK_FULL), jobs.HINDERED),
        (with_cause(UsageError("The folder cannot be made."), DISK_FULL), jobs.HINDERED),
        (with_cause(EnvironmentFailedError("step raised OSError"), DISK_FULL), jobs.FAILED),
        (
            with_cause(
                UsageError("reset failed."), with_cause(EnvironmentFailedError("reset raised OSError"), DISK_FULL)
            ),
            jobs.FAILED,
        ),
        (ValueError("of the wrong shape"), jobs.FAILED),
    ],
)
def test_full_disk_is_hindered_but_run_errors_are_failed(error: BaseException, kind: str):
    class Raising:
        def work(self, *_: Any) -> None:
            raise error

    job: Any = Raising()
    assert jobs.outcome(job)[:2] == ("failed", kind)


def test_failed_run_is_reported_and_retried(tmp_path: Path):
    file = tmp_path / "stuck"
    file.touch()
    folder = tmp_path / "sweep"
    options = {"environment_options": {"file": str(file)}, "seeds": 1, "jobs": 1}
    settings = {"stuck": small(), "well": {"algorithm": small(), "environment_options": {"file": ""}}}
    sweep_result = duetto.sweep(settings, Stuck, output=folder, **RUN | options)
    assert [(run.path.name, run.state) for run in sweep_result.runs] == [
        ("stuck-Stuck-s0", "failed"),
        ("well-Stuck-s0", "complete"),
    ]
    (failed,) = sweep_result.failed
    assert "step raised RuntimeError: the lever is stuck" in failed.reason
    assert failed.log == folder / "logs" / "stuck-Stuck-s0.txt"
    text = failed.log.read_text()
    assert failed.reason in text
    assert 'raise RuntimeError("the lever is stuck")' in text
    assert [result.seeds for result in sweep_result.results] == [1]
    file.unlink()
    again = duetto.sweep(settings, Stuck, output=folder, **RUN | options)
    assert [run.state for run in again.runs] == ["complete"] * 2
    assert not failed.log.exists() or "RuntimeError" not in failed.log.read_text()  # the log of the failure is gone


# ---------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("algorithms", "environments", "options", "words"),
    [
        ([], "Pendulum-v1", {}, "sweep needs at least one algorithm and one environment"),
        ([3], "Pendulum-v1", {}, "algorithm is 3; it must be a name"),
        ("td3", "Pendulum-v1", {"stepps": 3}, "has no option 'stepps'. Did you mean"),
        ("td3", "Pendulum-v1", {"seed": 3}, "has seeds, and no option 'seed'"),
        ("td3", "Pendulum-v1", {"track": 5}, "There is no tracker 5. There are: wandb"),
        (["td3", "td3"], "Pendulum-v1", {}, "Two runs would be called td3-Pendulum-v1-s0"),
    ],
)
def test_mistake_in_sweep_call_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithms: Any, environments: Any, options: Any, words: str
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as raised:
        duetto.sweep(algorithms, environments, **options)
    assert words in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_each_sweep_setting_has_its_own_options():
    own = {"algorithm": "td3", "tau": 0.01, "hidden": (8,), "preset": "default", "steps": 50}
    options = {"steps": 40, "environment_options": {"g": 9}}
    first, second = experiments({"td3": None, "mine": own}, "Pendulum-v1", "1-2", options)
    assert (first.seeds, second.seeds) == ((1, 2), (1, 2))
    one, two = first.spec, second.spec
    assert (one.name, one.options.steps, one.preset) == ("td3-Pendulum-v1", 40, "Pendulum-v1")
    assert (two.name, two.options.steps, two.preset) == ("mine-Pendulum-v1", 50, "default")
    assert (two.algorithm.tau, two.algorithm.hidden, two.environment_options) == (0.01, (8,), {"g": 9})


def test_default_sweep_folder_names_algorithms_and_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    chosen = experiments(["td3", "sac"], ["Pendulum-v1", "MountainCarContinuous-v0"], 1, {})
    assert listed(chosen, None)[0] == tmp_path / "sweeps" / "td3+sac-Pendulum-v1+MountainCarContinuous-v0"
    longest = [replace(chosen[0], spec=replace(chosen[0].spec, environment=f"Half{n}-v5" * 3)) for n in range(99)]
    assert len(default_name(longest)) <= MAX_NAME
