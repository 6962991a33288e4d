"""Studies of tiny runs: results, continuation and failures."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import wait_for
from line_environment import Short, Slow
from optuna.storages.journal import JournalFileBackend
from tunable import FIXED, RUN, SEARCH, SMALL, RaisesOnce

import duetto
from duetto.errors import DuettoError, UsageError
from duetto.runs.run import Run
from duetto.storage import signing
from duetto.storage.safe_yaml import read_yaml
from duetto.tools.plot.curves import interquartile_mean
from duetto.tools.tune.api import TuneResult


def run_study(folder: Path, environment: Any = Short, **options: Any) -> TuneResult:
    return duetto.tune("ddpg", environment, output=folder, **{"trials": 2, **SMALL, **options})


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    return run_study(tmp_path_factory.mktemp("tuning") / "study", trials=3)


# ---------------------------------------------------------------------------------------------------- results
def test_best_trial_has_highest_score_over_seeds(study: TuneResult):
    assert study.best is not None
    assert [trial.state for trial in study.trials] == ["complete"] * 3
    assert study.best.value == max(trial.value for trial in study.trials if trial.value is not None)
    for trial in study.trials:
        assert trial.value == interquartile_mean(np.array(trial.seeds))
    assert study.trials[0].options == {"discount": 0.99, "actor_learning_rate": 1e-3, "exploration_noise": 0.1}


def test_every_seed_of_a_trial_is_a_run(study: TuneResult):
    assert study.best is not None
    assert [path.name for path in study.runs] == ["ddpg-Short-s0", "ddpg-Short-s1"]
    for path, score in zip(study.runs, study.best.seeds, strict=True):
        run = Run(path, environment=Short)
        assert run.evaluations()[-1]["step"] == 60
        assert run.evaluations()[-1]["mean_return"] == score  # the window is a quarter of the evaluations, at least one
        assert run.config.algorithm.exploration_noise == study.best.options["exploration_noise"]
        assert run.config.algorithm.batch_size == 4  # a fixed option
        run.resume(70)
        assert run.evaluations()[-1]["step"] == 70
    assert duetto.plot(study.runs, study.folder / "curves.png").is_file()


def test_best_preset_can_be_trained(study: TuneResult, tmp_path: Path):
    assert study.preset == study.folder / "best.yaml"
    run = duetto.train("ddpg", Short, preset=str(study.preset), runs_dir=tmp_path, backend="torch", device="cpu")
    algorithm = run.config.algorithm
    assert study.best is not None
    assert {name: getattr(algorithm, name) for name in study.best.options} == study.best.options
    assert (algorithm.hidden, run.config.run.steps, run.config.preset) == ((8,), 60, str(study.preset))
    assert "checkpoint_every" not in read_yaml(study.preset)["Short"]["run"]


def test_trials_csv_lists_every_trial(study: TuneResult):
    rows = list(csv.DictReader((study.folder / "trials.csv").read_text().splitlines()))
    assert [row["trial"] for row in rows] == ["0", "1", "2"]
    assert [float(row["score"]) for row in rows] == [trial.value for trial in study.trials]
    assert float(rows[1]["discount"]) == study.trials[1].options["discount"]
    assert json.loads(json.dumps(study.to_dict()))["best"]["value"] == study.best.value


# ---------------------------------------------------------------------------------------------------- continuing
def test_same_call_continues_study_and_other_is_refused(study: TuneResult, tmp_path: Path):
    copied = shutil.copytree(study.folder, tmp_path / "study")
    again = run_study(copied, trials=4, threads=2)  # --threads may differ: on JAX it depends on the machine
    assert len(again.trials) == 4
    assert again.trials[:3] == study.trials
    with pytest.raises(UsageError) as raised:
        run_study(copied, trials=9, seeds=3, search={**SEARCH, "tau": "auto"})
    assert "belongs to another study: seeds was [0, 1], is now [0, 1, 2]" in str(raised.value)
    assert "search.tau.low was null, is now 0.0005" in str(raised.value)
    with pytest.raises(UsageError, match=r"exists and is no study: it has no study\.yaml"):
        run_study(study.folder.parent)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("trials/0000", "symbolic"),
        ("trials/0000/ddpg-Short-s0", "symbolic"),
        ("journal.jsonl", "hard"),
        ("workers.log", "symbolic"),
    ],
)
def test_study_follows_no_links(study: TuneResult, tmp_path: Path, name: str, how: str):
    """No run is trained, and no file is changed, where a link leads."""
    outside, copied = tmp_path / "outside", tmp_path / "study"
    outside.mkdir()
    (outside / "mine.txt").write_text("precious")
    copied.mkdir()
    shutil.copy(study.folder / "study.yaml", copied)
    (copied / name).parent.mkdir(parents=True, exist_ok=True)
    if how == "hard":
        os.link(outside / "mine.txt", copied / name)
    else:
        (copied / name).symlink_to(outside / "mine.txt" if "." in name else outside)
    with pytest.raises(DuettoError, match=f"{name} is a (hard )?link"):
        run_study(copied, trials=1)
    assert [path.name for path in outside.iterdir()] == ["mine.txt"]
    assert (outside / "mine.txt").read_text() == "precious"


def test_full_disk_is_reported_and_trial_continues_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    how: dict[str, Any] = {"trials": 1, "seeds": 1}
    with monkeypatch.context() as patch:
        append, done = JournalFileBackend.append_logs, list[None]()

        def fills_up(self: Any, logs: Any) -> None:
            if len(done) >= 12:
                raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "study" / "journal.jsonl"))
            done.append(None)
            append(self, logs)

        patch.setattr(JournalFileBackend, "append_logs", fills_up)
        with pytest.raises(
            DuettoError, match=r"journal\.jsonl cannot be written: No space left on device\. Remove the"
        ):
            run_study(tmp_path / "study", **how)
    assert [trial.state for trial in run_study(tmp_path / "study", **how).trials] == ["complete"]


KILLED_STUDY = """
import sys, duetto
from line_environment import Slow
from tunable import SMALL
duetto.tune("ddpg", Slow, trials=2, output=sys.argv[1], **{**SMALL, "seeds": 1, "steps": 100})
"""


def evaluation_counts(folder: Path, trial: int) -> list[int]:
    files = (folder / "trials" / f"{trial:04}").glob("*/evaluations.csv")
    return [len(file.read_text().splitlines()) - 2 for file in files]  # without the header and the evaluation at step 0


def test_killed_study_has_the_trials_of_undisturbed_one(tmp_path: Path):
    """After SIGKILL in the middle of a trial, the workers end and the same call resumes their runs."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.Popen([sys.executable, "-c", KILLED_STUDY, str(tmp_path / "killed")], env=environment)
    wait_for(lambda: max(evaluation_counts(tmp_path / "killed", 1), default=0) >= 1)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    whole = run_study(tmp_path / "whole", Slow, trials=2, seeds=1, steps=100)
    again = run_study(tmp_path / "killed", Slow, trials=2, seeds=1, steps=100)
    assert again.trials == whole.trials
    assert again.best == whole.best


# ---------------------------------------------------------------------------------------------------- custom algorithms
CUSTOM_ALGORITHM = """
from dataclasses import dataclass
from duetto.algorithms.options import NonNegative
from duetto.algorithms.ddpg import DDPG

@dataclass(frozen=True)
class Mine(DDPG):
    \"\"\"DDPG by another name.\"\"\"

    warmth: NonNegative = 0.5
    \"\"\"Of no use.\"\"\"
"""


def test_tune_searches_fields_of_custom_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any):
    """It prints each notice of its runs once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    (tmp_path / "mine.py").write_text(CUSTOM_ALGORITHM)
    call = ["tune", "./mine.py:Mine", "Pendulum-v1", "--trials", "1", "--seeds", "2", "--json"]
    for name, value in {**RUN, **FIXED, "hidden": 8, "random_steps": 100}.items():
        call += [f"--{name.replace('_', '-')}", str(value)]
    found = json.loads(command(*call, "--environment-options", "max_episode_steps=5").done().out)
    assert found["best"]["options"]["warmth"] == 0.5
    assert [Path(run).name for run in found["runs"]] == ["mine-Pendulum-v1-s0", "mine-Pendulum-v1-s1"]
    [notice] = found["notices"]
    assert notice.startswith("trials/0000/mine-Pendulum-v1-s0: 60 steps are too few: all actions will be random")


# ---------------------------------------------------------------------------------------------------- failures
def test_failed_trials_do_not_end_the_study(tmp_path: Path):
    """An environment that raises, a loss that diverges, and options that exclude each other."""
    (tmp_path / "file").touch()
    search = {"critic_learning_rate": {"choices": [1e-3, 1e30]}, "unroll": {"choices": [5, 20]}}
    found = run_study(
        tmp_path / "study",
        RaisesOnce,
        environment_options={"file": str(tmp_path / "file")},
        **{"trials": 8, "seeds": 1, "search": search, "jobs": 2, "seed": 1},
    )
    by_state: dict[str, list[Any]] = {}
    for trial in found.trials:
        by_state.setdefault(trial.state, []).append(trial)
    assert set(by_state) == {"complete", "diverged", "failed"}
    raised = [trial for trial in by_state["failed"] if "the lever is stuck" in trial.reason]
    refused = [trial for trial in by_state["failed"] if "overlap is 10" in trial.reason]
    assert len(raised) == 1
    assert len(raised) + len(refused) == len(by_state["failed"])
    assert all(trial.options["unroll"] == 5 for trial in refused)
    assert refused
    assert all(
        "diverged" in trial.reason and trial.options["critic_learning_rate"] == 1e30 for trial in by_state["diverged"]
    )
    assert found.best is not None
    assert found.best.options == {"critic_learning_rate": 1e-3, "unroll": 20}


def test_study_without_complete_trial_is_an_error(tmp_path: Path):
    with pytest.raises(duetto.DuettoError, match=r"None of the 1 trials in .* is complete.*diverged"):
        run_study(tmp_path / "study", trials=1, seeds=1, critic_learning_rate=1e30, search={"tau": "auto"})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"trials": 0}, "trials is 0; it must be at least 1"),
        ({"jobs": 0}, "jobs is 0"),
        ({"seeds": 0}, "seeds is 0"),
        ({"evaluate_every": 0}, "a study compares evaluations"),
        ({"policy_delay": 2}, "tune has no option 'policy_delay'. It has: steps, "),
        ({"actors": 1}, "tune has no option 'actors'. It has: steps, "),  # tune does not run on a cluster
        ({"environment": Short()}, "cannot share one environment object"),
        ({"discount": 0.9}, "discount has a value and a search"),
        ({"search": "none.yaml"}, "search file none.yaml cannot be read"),
    ],
)
def test_mistakes_in_tune_call_leave_no_folder(tmp_path: Path, options: dict[str, Any], sentence: str):
    with pytest.raises(UsageError) as raised:
        run_study(tmp_path / "study", **options)
    assert sentence in str(raised.value)
    assert not (tmp_path / "study").exists()
