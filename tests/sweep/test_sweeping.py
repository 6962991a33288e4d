"""Sweeps with real runs, tiny ones: what they leave, that they continue, and what they make of failures."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import wait_for
from line_environment import Short, Slow
from pretended import pretend
from small_runs import assert_same
from sweepable import RUN, SMALL, Orphaned, Stuck, small

import duetto
from duetto.errors import CheckpointError, DuettoError, EnvironmentFailedError, UsageError
from duetto.runs import pool as jobs
from duetto.runs.pool import ProcessPool
from duetto.runs.run import Run
from duetto.runs.spec import RunSpec
from duetto.storage import signing
from duetto.storage.config import RunOptions
from duetto.storage.run_folder import folder_lock
from duetto.storage.safe_yaml import read_yaml, to_yaml
from duetto.storage.user_code import Origin
from duetto.tools.sweep.api import MAX_NAME, SweepResult, default_name, experiments, listed, results_of
from duetto.tools.sweep.sweep import Experiment, runs


def swept(folder: Path, environments: Any = Short, **options: Any) -> SweepResult:
    return duetto.sweep({"small": small()}, environments, output=folder, **{"seeds": 2, "jobs": 2} | RUN | options)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    return swept(tmp_path_factory.mktemp("sweeping") / "sweep", seeds=3)


# ---------------------------------------------------------------------------------------------------- what it leaves
def test_every_run_is_the_one_that_train_makes(found: SweepResult, tmp_path: Path):
    assert [run.path.name for run in found.runs] == [f"small-Short-s{seed}" for seed in range(3)]
    assert [(run.state, run.step) for run in found.runs] == [("complete", 60)] * 3
    alone = duetto.train(small(), Short, runs_dir=tmp_path, seed=1, **RUN)
    assert_same(Run(found.runs[1].path, environment=Short), alone)


def test_a_table_of_interquartile_means_and_the_curves(found: SweepResult):
    (result,) = found.results
    last = [run.mean_return for run in found.runs]
    assert (result.environment, result.label, result.seeds, result.step) == ("Short", "td3", 3, 60)
    assert result.interquartile_mean == pytest.approx(sum(last) / 3)  # SciPy cuts a quarter of three, which is none
    assert result.low is not None
    assert {run.path.name.rpartition("-s")[0] for run in found.runs} == {result.name}
    assert min(last) - 1e-9 <= result.low <= result.interquartile_mean <= result.high <= max(last) + 1e-9
    (row,) = csv.DictReader((found.folder / "results.csv").read_text().splitlines())
    assert float(row["interquartile_mean"]) == result.interquartile_mean
    assert found.picture == found.folder / "curves.png"
    assert found.picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(json.dumps(found.to_dict()))["results"][0]["low"] == result.low
    assert not list((found.folder / "logs").iterdir())  # nothing was printed


def test_the_same_call_keeps_what_is_complete_and_more_seeds_are_what_is_missing(found: SweepResult):
    before = {run.path: (run.path / "metrics.jsonl").stat().st_mtime_ns for run in found.runs}
    again = swept(found.folder, seeds=4, threads=2)  # JAX has as many as there are cores, on each machine
    assert [run.state for run in again.runs] == ["complete"] * 4
    assert {path: (path / "metrics.jsonl").stat().st_mtime_ns for path in before} == before
    assert again.results[0].seeds == 4


OWN_ENVIRONMENT = """import gymnasium
class Mine(gymnasium.Wrapper):
    def __init__(self): super().__init__(gymnasium.make("Pendulum-v1", max_episode_steps=10))
"""


@pytest.mark.parametrize("which", ["algorithm", "environment"])
def test_a_file_that_is_edited_while_runs_wait_for_their_turn_ends_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
):
    """The runs before it are of the file as it was."""
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    file = {"algorithm": tmp_path / "own.py", "environment": tmp_path / "there.py"}
    file["algorithm"].write_text(f"import duetto\n{OWN}")
    file["environment"].write_text(OWN_ENVIRONMENT)
    start, begun = ProcessPool.start, list[Any]()

    def editing(self: ProcessPool, job: Any) -> None:
        if begun:
            file[which].write_text(f"# edited\n{file[which].read_text()}")
        begun.append(job)
        start(self, job)

    monkeypatch.setattr(ProcessPool, "start", editing)
    own = {"own": {"algorithm": f"{tmp_path}/own.py:TD3", **SMALL}}
    found = duetto.sweep(own, f"{tmp_path}/there.py:Mine", seeds=2, jobs=1, output=tmp_path / "sweep", **RUN)
    assert [run.state for run in found.runs] == ["complete", "failed"]
    assert f"{file[which].name}:" in found.failed[0].reason
    assert "was edited while runs of it wait for their turn" in found.failed[0].reason


def test_a_run_that_was_begun_otherwise_is_refused_with_what_differs(found: SweepResult):
    with pytest.raises(
        UsageError, match=r"small-Short-s0 was started otherwise: run.steps was 60, is now 90\. Give the"
    ):
        swept(found.folder, steps=90)
    with pytest.raises(UsageError, match=r"algorithm.tau was 0.005, is now 0.1"):
        duetto.sweep({"small": duetto.TD3(tau=0.1)}, Short, output=found.folder, **RUN)


OWN = "class TD3(duetto.TD3):\n    pass\n"


def test_own_files_that_were_edited_are_refused_also_where_the_runs_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As is the algorithm whose name such a file's class has, and a run that started from another one."""
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    file, own = tmp_path / "own.py", {"own": {"algorithm": f"{tmp_path}/own.py:TD3", **SMALL}}
    file.write_text(f"import duetto\n{OWN}")

    def again(algorithms: Any = own) -> SweepResult:
        return duetto.sweep(algorithms, "Pendulum-v1", seeds=1, output=tmp_path / "sweep", **RUN)

    assert [run.state for run in again().runs] == ["complete"]
    assert [run.state for run in again().runs] == ["complete"]
    before = Origin.from_dict(read_yaml(tmp_path / "sweep" / "own-Pendulum-v1-s0" / "config.yaml")["algorithm"]["from"])
    file.write_text(f"import duetto  # edited\n{OWN}")
    was = rf'own.py:TD3 \(sha256 {before.checksum[:8]}\)", is now "own.py:TD3 \(sha256 '
    with pytest.raises(UsageError, match=was):
        again()
    with pytest.raises(UsageError, match=r'TD3.*, is now "Duetto"\. Give the same options .*, and put back what was '):
        again({"own": small()})
    file.write_text(f"import duetto\n{OWN}")
    assert [run.state for run in again().runs] == ["complete"]
    path = tmp_path / "sweep" / "own-Pendulum-v1-s0" / "config.yaml"
    began = {"run": "/runs/x", "checkpoint": "last", "optimizers": False, "memory": False, "step": 9}
    path.write_text(to_yaml(read_yaml(path) | {"from": began}))
    with pytest.raises(UsageError, match=r'from was "/runs/x \(last, step 9\)", is now "scratch"'):
        again()


@pytest.mark.parametrize("name", [".git", "thesis", "checkpoints"])
def test_nothing_is_deleted_in_a_folder_that_lacks_its_config(tmp_path: Path, name: str):
    """Hidden files were deleted where a run of the same name was about to start."""
    (tmp_path / "small-Short-s0" / name).mkdir(parents=True)
    (tmp_path / "small-Short-s0" / name / "mine").touch()
    with pytest.raises(UsageError, match=r"small-Short-s0 exists and is no run: it has no config\.yaml"):
        swept(tmp_path)
    assert (tmp_path / "small-Short-s0" / name / "mine").exists()


def test_a_folder_that_a_run_left_which_was_killed_as_it_started_is_taken(tmp_path: Path):
    (tmp_path / "small-Short-s0").mkdir()
    for name in (".lock", ".tmp-config.yaml"):
        (tmp_path / "small-Short-s0" / name).touch()
    assert [run.state for run in swept(tmp_path, seeds=1, steps=20).runs] == ["complete"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize(
    "name", ["small-Short-s0", "logs", ".beginning", ".beginning/small-Short-s0", "logs/small-Short-s0.txt", "hard"]
)
def test_no_link_in_a_sweeps_folder_is_followed(tmp_path: Path, name: str):
    """A run was trained where a link led, files there were emptied, and lock files made."""
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
        swept(sweep, seeds=1, steps=20)
    assert not list((outside / "empty").iterdir())
    assert (outside / "mine.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("file", "line"),
    [("metrics.jsonl", '{"step":Infinity}'), ("metrics.jsonl", "[" * 9999), ("evaluations.csv", "")],
)
def test_a_damaged_last_line_of_a_log_is_passed_over(found: SweepResult, tmp_path: Path, file: str, line: str):
    """OverflowError and RecursionError came out of `duetto.sweep`."""
    copied = shutil.copytree(found.folder, tmp_path / "sweep")
    path = copied / "small-Short-s1" / file
    if file.endswith("csv"):
        line = ",".join(["inf"] + ["1"] * path.read_text().partition("\n")[0].count(","))
    path.write_text(f"{path.read_text()}{line}\n")
    assert [run.state for run in swept(copied, seeds=3).runs] == ["complete"] * 3


# ---------------------------------------------------------------------------------------------------- continuing
KILLED = """
import signal, sys, duetto
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it
from line_environment import Slow
from sweepable import RUN, small
duetto.sweep({"small": small()}, Slow, seeds=int(sys.argv[2]), jobs=2, output=sys.argv[1], **{**RUN, "steps": 120})
"""


def checkpoints(folder: Path) -> list[int]:
    return [len(list(run.glob("checkpoints/step-*"))) for run in folder.glob("small-Slow-s*")]


@pytest.mark.parametrize(("how", "seeds"), [("SIGKILL", 2), ("SIGINT", 1)])
def test_a_sweep_that_was_ended_goes_on_as_if_nothing_had_happened(tmp_path: Path, how: str, seeds: int):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "sweep", str(seeds)], env=environment)
    wait_for(lambda: sum(made > 0 for made in checkpoints(tmp_path / "sweep")) == seeds)
    process.send_signal(getattr(signal, how))
    assert process.wait(60) == -getattr(signal, how)  # passed on: the script does not continue with something else
    options = {"steps": 120}
    before = [last_checkpoint(tmp_path / "sweep" / f"small-Slow-s{seed}") for seed in range(seeds)]
    assert all(0 < step < 120 for step in before)
    configs = {path: path.stat().st_mtime_ns for path in (tmp_path / "sweep").glob("*/config.yaml")}
    again = swept(tmp_path / "sweep", Slow, seeds=seeds, **options)
    assert [(run.state, run.step) for run in again.runs] == [("complete", 120)] * seeds
    for seed in range(seeds):
        alone = duetto.train(small(), Slow, runs_dir=tmp_path, seed=seed, **RUN | options)
        assert_same(Run(again.runs[seed].path, environment=Slow), alone)
    assert {path: path.stat().st_mtime_ns for path in configs} == configs  # taken up, not started anew
    assert not list(again.folder.glob("*/before*"))


def last_checkpoint(folder: Path) -> int:
    return max(int(path.name[5:]) for path in folder.glob("checkpoints/step-*"))


def test_what_another_process_begins_or_works_on_is_not_begun(tmp_path: Path):
    """Neither in the moments before its folder has a config, nor after."""
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


def test_a_run_of_other_options_in_its_folder_is_not_gone_on_with(tmp_path: Path):
    """As two sweeps of one folder find it that were planned before either started."""
    one, other = (
        runs([Experiment(RunSpec(kind, Short, RunOptions(**RUN), name="small"), (0,))], tmp_path)[0]
        for kind in (small(), duetto.TD3(**SMALL, policy_delay=1))
    )
    assert jobs.outcome(one.job) == ("ended", False, [])
    assert (one.complete, other.complete) == (True, False)
    before = Run(one.folder, environment=Short).metrics()
    failed, kind, sentence, _ = jobs.outcome(other.job)
    assert (failed, kind) == ("failed", jobs.HINDERED)
    assert f"{one.folder} was started otherwise: algorithm.policy_delay was 2, is now 1. Give the same" in sentence
    assert Run(one.folder, environment=Short).metrics() == before


# ---------------------------------------------------------------------------------------------------- failures
def _from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FULL, jobs.HINDERED),
        (_from(CheckpointError("The checkpoint cannot be written."), FULL), jobs.HINDERED),
        (_from(UsageError("The folder cannot be made."), FULL), jobs.HINDERED),
        (UsageError("n_step is 0."), jobs.FAILED),
        (_from(EnvironmentFailedError("step raised OSError"), FULL), jobs.FAILED),
        (_from(UsageError("reset failed."), _from(EnvironmentFailedError("reset raised OSError"), FULL)), jobs.FAILED),
        (ValueError("of the wrong shape"), jobs.FAILED),
    ],
)
def test_what_the_machine_does_is_told_from_what_a_run_does(error: BaseException, kind: str):
    class Raising:
        def work(self, *_: Any) -> None:
            raise error

    job: Any = Raising()
    assert jobs.outcome(job)[:2] == ("failed", kind)


def test_a_failure_is_kept_apart_and_tried_again(tmp_path: Path):
    file = tmp_path / "stuck"
    file.touch()
    folder = tmp_path / "sweep"
    options = {"environment_options": {"file": str(file)}, "seeds": 1, "jobs": 1}
    settings = {"stuck": small(), "well": {"algorithm": small(), "environment_options": {"file": ""}}}
    found = duetto.sweep(settings, Stuck, output=folder, **RUN | options)
    assert [(run.path.name, run.state) for run in found.runs] == [
        ("stuck-Stuck-s0", "failed"),
        ("well-Stuck-s0", "complete"),
    ]
    (failed,) = found.failed
    assert "step raised RuntimeError: the lever is stuck" in failed.reason
    assert failed.log == folder / "logs" / "stuck-Stuck-s0.txt"
    text = failed.log.read_text()
    assert failed.reason in text
    assert 'raise RuntimeError("the lever is stuck")' in text
    assert [result.seeds for result in found.results] == [1]
    file.unlink()
    again = duetto.sweep(settings, Stuck, output=folder, **RUN | options)
    assert [run.state for run in again.runs] == ["complete"] * 2
    assert not failed.log.exists() or "RuntimeError" not in failed.log.read_text()  # of the failure nothing is left


# ---------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("algorithms", "environments", "options", "words"),
    [
        ([], "Pendulum-v1", {}, "sweep needs at least one algorithm and one environment"),
        (["td4"], "Pendulum-v1", {}, "There is no algorithm 'td4'. Did you mean 'td3'?"),
        ([3], "Pendulum-v1", {}, "algorithm is 3; it must be a name"),
        ("td3", "Pendulum-v1", {"stepps": 3}, "has no option 'stepps'. Did you mean"),
        ("td3", "Pendulum-v1", {"seed": 3}, "has seeds, and no option 'seed'"),
        ("td3", "Pendulum-v1", {"seeds": "2-x"}, "seeds is '2-x'; it must be how many, 5, or"),
        ("td3", "Pendulum-v1", {"seeds": [1, 1]}, "seeds is [1, 1]; it must be"),
        ("td3", "Pendulum-v1", {"steps": "many"}, "steps is 'many'; it must be a whole number"),
        ("td3", "CartPole-v1", {}, "td3 needs a continuous action space (Box)"),
        ("td3", "Pendulum-v1", {"track": 5}, "There is no tracker 5. There are: wandb"),
        (["td3", "td3"], "Pendulum-v1", {}, "Two runs would be called td3-Pendulum-v1-s0"),
    ],
)
def test_a_mistake_gets_a_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithms: Any, environments: Any, options: Any, words: str
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as raised:
        duetto.sweep(algorithms, environments, **options)
    assert words in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_went_back_after_it_lost_a_part_has_ended_as_its_last_session_did():
    class Twice:
        def work(self, callbacks: Any) -> None:
            callbacks[0].on_start(SimpleNamespace(stopped=True, notices=["a shard was lost"]))
            callbacks[0].on_start(SimpleNamespace(stopped=False, notices=["it went back"]))

    lost: Any = Twice()
    assert jobs.outcome(lost) == ("ended", False, ["it went back"])


def test_a_process_that_is_killed_is_heard_of_though_its_child_lives(tmp_path: Path):
    began = time.monotonic()
    found = swept(tmp_path / "sweep", Orphaned, seeds=1)
    assert time.monotonic() - began < 45
    assert [run.state for run in found.runs] == ["failed"]
    assert "ended with the code -9" in found.runs[0].reason


def test_settings_of_one_algorithm_have_options_of_their_own():
    own = {"algorithm": "td3", "tau": 0.01, "hidden": (8,), "preset": "default", "steps": 50}
    options = {"steps": 40, "environment_options": {"g": 9}}
    first, second = experiments({"td3": None, "mine": own}, "Pendulum-v1", "1-2", options)
    assert (first.seeds, second.seeds) == ((1, 2), (1, 2))
    one, two = first.spec, second.spec
    assert (one.name, one.options.steps, one.preset) == ("td3-Pendulum-v1", 40, "Pendulum-v1")
    assert (two.name, two.options.steps, two.preset) == ("mine-Pendulum-v1", 50, "default")
    assert (two.algorithm.tau, two.algorithm.hidden, two.environment_options) == (0.01, (8,), {"g": 9})


def test_the_default_folder_names_algorithms_and_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    chosen = experiments(["td3", "sac"], ["Pendulum-v1", "MountainCarContinuous-v0"], 1, {})
    assert listed(chosen, None)[0] == tmp_path / "sweeps" / "td3+sac-Pendulum-v1+MountainCarContinuous-v0"
    longest = [
        replace(chosen[0], spec=replace(chosen[0].spec, environment=f"HalfCheetahNumber{number}-v5"))
        for number in range(8)
    ]
    name = default_name(longest)
    assert len(name) <= MAX_NAME
    assert name.startswith("td3-HalfCheetahNumber0-v5+HalfCheetahNumber1-v5")


def test_settings_that_come_to_the_same_options_keep_their_runs_apart(tmp_path: Path):
    """Where a run of the first failed, its place was taken by one of the second."""
    folders = [
        pretend(tmp_path / name, [value], seed=seed)
        for name, value, seed in (
            ("a-Pendulum-v1-s0", 1.0, 0),
            ("b-Pendulum-v1-s0", 2.0, 0),
            ("b-Pendulum-v1-s1", 4.0, 1),
        )
    ]
    complete: Any = {"state": "complete", "step": 0, "mean_return": 1.0, "reason": "", "log": None}
    states = [SimpleNamespace(folder=one, **complete) for one in folders]
    sweep: Any = SimpleNamespace(folder=tmp_path, runs=states, stopped=False, notices=[])
    found = results_of(sweep)
    assert [(one.name, one.seeds, one.interquartile_mean) for one in found.results] == [
        ("a-Pendulum-v1", 1, 1.0),
        ("b-Pendulum-v1", 2, 3.0),
    ]
    assert (tmp_path / "curves.png").is_file()
