"""Studies with real runs, tiny ones: what they leave, that they continue, and what they make of failures."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from commands import wait_for
from hostile import contents
from line_environment import Short, Slow
from optuna.storages.journal import JournalFileBackend
from tunable import FIXED, RUN, SEARCH, SMALL, Once

import duetto
from duetto.errors import DuettoError, UsageError
from duetto.runs.run import Run
from duetto.runs.spec import RunSpec
from duetto.storage import signing
from duetto.storage.config import RunOptions
from duetto.storage.safe_yaml import read_yaml
from duetto.storage.user_code import named
from duetto.tools.cli import main
from duetto.tools.plot.curves import interquartile_mean
from duetto.tools.tune.api import TuneResult, planned_study
from duetto.tools.tune.study import Plan


def tuned(folder: Path, environment: Any = Short, **options: Any) -> TuneResult:
    return duetto.tune("ddpg", environment, output=folder, **{"trials": 2, **SMALL, **options})


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    return tuned(tmp_path_factory.mktemp("tuning") / "study", trials=3)


# ---------------------------------------------------------------------------------------------------- what it leaves
def test_the_best_trial_is_the_one_with_the_highest_score_over_its_seeds(study: TuneResult):
    assert study.best is not None
    assert [trial.state for trial in study.trials] == ["complete"] * 3
    assert study.best.value == max(trial.value for trial in study.trials if trial.value is not None)
    for trial in study.trials:
        assert trial.value == interquartile_mean(np.array(trial.seeds))
    assert study.trials[0].options == {"discount": 0.99, "actor_learning_rate": 1e-3, "exploration_noise": 0.1}


def test_every_seed_is_an_ordinary_run(study: TuneResult):
    assert study.best is not None
    assert [path.name for path in study.runs] == ["ddpg-Short-s0", "ddpg-Short-s1"]
    for path, score in zip(study.runs, study.best.seeds, strict=True):
        run = Run(path, environment=Short)
        assert run.evaluations()[-1]["step"] == 60
        assert run.evaluations()[-1]["mean_return"] == score  # of three evaluations a quarter is one
        assert run.config.algorithm.exploration_noise == study.best.options["exploration_noise"]
        assert run.config.algorithm.batch_size == 4  # given a value
        run.resume(70)
        assert run.evaluations()[-1]["step"] == 70
    assert duetto.plot(study.runs, study.folder / "curves.png").is_file()


def test_the_best_is_a_preset_that_trains(study: TuneResult, tmp_path: Path):
    assert study.preset == study.folder / "best.yaml"
    run = duetto.train("ddpg", Short, preset=str(study.preset), runs_dir=tmp_path, backend="torch", device="cpu")
    algorithm = run.config.algorithm
    assert study.best is not None
    assert {name: getattr(algorithm, name) for name in study.best.options} == study.best.options
    assert (algorithm.hidden, run.config.run.steps, run.config.preset) == ((8,), 60, str(study.preset))
    assert "checkpoint_every" not in read_yaml(study.preset)["Short"]["run"]


def test_a_table_of_all_trials(study: TuneResult):
    rows = list(csv.DictReader((study.folder / "trials.csv").read_text().splitlines()))
    assert [row["trial"] for row in rows] == ["0", "1", "2"]
    assert [float(row["score"]) for row in rows] == [trial.value for trial in study.trials]
    assert float(rows[1]["discount"]) == study.trials[1].options["discount"]
    assert json.loads(json.dumps(study.to_dict()))["best"]["value"] == study.best.value


def test_on_jax(tmp_path: Path):
    found = tuned(tmp_path / "study", trials=1, seeds=1, backend="jax", steps=40)
    assert [trial.state for trial in found.trials] == ["complete"]
    assert Run(found.runs[0], environment=Short).config.run.backend == "jax"


# ---------------------------------------------------------------------------------------------------- continuing
def test_the_same_call_goes_on_and_another_is_refused(study: TuneResult, tmp_path: Path):
    copied = shutil.copytree(study.folder, tmp_path / "study")
    again = tuned(copied, trials=4, threads=2)  # JAX has as many as there are cores, on each machine
    assert len(again.trials) == 4
    assert again.trials[:3] == study.trials
    with pytest.raises(UsageError) as raised:
        tuned(copied, trials=9, seeds=3, search={**SEARCH, "tau": "auto"})
    assert "is of another study: seeds was [0, 1], is now [0, 1, 2]" in str(raised.value)
    assert "search.tau.low was null, is now 0.0005" in str(raised.value)
    with pytest.raises(UsageError, match=r"exists and is no study: it has no study\.yaml"):
        tuned(study.folder.parent)


def test_an_earlier_trial_in_a_trials_folder_is_not_counted_as_its_own(tmp_path: Path):
    """As where the journal was put back from an older copy: its score was recorded for other options."""
    how: dict[str, Any] = {"trials": 1, "seeds": 1, "search": {"exploration_noise": "auto"}}
    first = tuned(tmp_path / "study", **how)
    tuned(tmp_path / "other", **how, tau=0.3)
    trials = tmp_path / "study" / "trials"
    trials.rename(tmp_path / "own")
    shutil.copytree(tmp_path / "other" / "trials", trials)
    (tmp_path / "study" / "journal.jsonl").unlink()
    with pytest.raises(duetto.DuettoError, match=r"was started otherwise: algorithm\.tau was 0\.3, is now 0\.005"):
        tuned(tmp_path / "study", **how)
    shutil.rmtree(trials)
    (tmp_path / "own").rename(trials)
    again = tuned(tmp_path / "study", **how)
    assert [trial.value for trial in again.trials] == [trial.value for trial in first.trials]


def test_a_trial_without_its_config_is_refused_and_kept(study: TuneResult, tmp_path: Path):
    """Its checkpoints, metrics and notes were deleted without a word."""
    copied = shutil.copytree(study.folder, tmp_path / "study")
    journal = copied / "journal.jsonl"
    *lines, _ = journal.read_text().splitlines()
    assert '"state"' in _
    journal.write_text("".join(f"{line}\n" for line in lines))  # the last trial has not ended
    run = copied / "trials" / "0002" / "ddpg-Short-s0"
    (run / "config.yaml").rename(tmp_path / "config.yaml")
    (run / "notes.md").write_text("years of work")
    before = contents(run)
    with pytest.raises(DuettoError, match=r"ddpg-Short-s0 is no run: it has no config\.yaml"):
        tuned(copied, trials=3)
    assert contents(run) == before
    (tmp_path / "config.yaml").rename(run / "config.yaml")
    assert [trial.value for trial in tuned(copied, trials=3).trials] == [trial.value for trial in study.trials]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("how", ["symbolic", "hard"])
@pytest.mark.parametrize("name", ["trials", "trials/0000", "trials/0000/ddpg-Short-s0", "journal.jsonl", "workers.log"])
def test_no_link_in_a_studys_folder_is_followed(study: TuneResult, tmp_path: Path, name: str, how: str):
    """Runs were trained where a link led, and files there were emptied and written."""
    outside, copied = tmp_path / "outside", tmp_path / "study"
    outside.mkdir()
    (outside / "mine.txt").write_text("precious")
    copied.mkdir()
    shutil.copy(study.folder / "study.yaml", copied)
    (copied / name).parent.mkdir(parents=True, exist_ok=True)
    if how == "hard":
        if "." not in name:
            pytest.skip("folders have no hard links")
        os.link(outside / "mine.txt", copied / name)
    else:
        (copied / name).symlink_to(outside / "mine.txt" if "." in name else outside)
    with pytest.raises(DuettoError, match=f"{name} is a (hard )?link"):
        tuned(copied, trials=1)
    assert [path.name for path in outside.iterdir()] == ["mine.txt"]
    assert (outside / "mine.txt").read_text() == "precious"


@pytest.mark.parametrize("writes", [0, 12])
def test_a_full_disk_gets_a_sentence_and_the_trial_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
):
    """A traceback came out of `duetto.tune`, from the end of a trial."""
    how: dict[str, Any] = {"trials": 1, "seeds": 1}
    with monkeypatch.context() as patch:
        append, done = JournalFileBackend.append_logs, list[None]()

        def fills_up(self: Any, logs: Any) -> None:
            if len(done) >= writes:
                raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "study" / "journal.jsonl"))
            done.append(None)
            append(self, logs)

        patch.setattr(JournalFileBackend, "append_logs", fills_up)
        with pytest.raises(
            DuettoError, match=r"journal\.jsonl cannot be written: No space left on device\. Remove the"
        ):
            tuned(tmp_path / "study", **how)
    assert [trial.state for trial in tuned(tmp_path / "study", **how).trials] == ["complete"]


KILLED = """
import sys, duetto
from line_environment import Slow
from tunable import SMALL
duetto.tune("ddpg", Slow, trials=3, output=sys.argv[1], **{**SMALL, "seeds": 1, "steps": 100})
"""


def evaluated(folder: Path, trial: int) -> list[int]:
    files = (folder / "trials" / f"{trial:04}").glob("*/evaluations.csv")
    return [len(file.read_text().splitlines()) - 2 for file in files]  # without the head, and that of step 0


def test_a_study_that_was_killed_goes_on_as_if_nothing_had_happened(tmp_path: Path):
    """SIGKILL in the middle of a trial; its processes end, its half runs are taken up, and all trials are the same."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "killed")], env=environment)
    wait_for(lambda: max(evaluated(tmp_path / "killed", 1), default=0) >= 2)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    whole = tuned(tmp_path / "whole", Slow, trials=3, seeds=1, steps=100)
    again = tuned(tmp_path / "killed", Slow, trials=3, seeds=1, steps=100)
    assert again.trials == whole.trials
    assert again.best == whole.best


def test_ctrl_c_stops_in_order(tmp_path: Path):
    """It writes checkpoints, keeps what is there, and says how to continue; the same command does."""
    call = [sys.executable, "-m", "duetto", "tune", "ddpg", "Pendulum-v1", "--trials", "2", "--seeds", "1"]
    for name, value in {**RUN, **FIXED, "steps": 100_000, "hidden": 8}.items():
        call += [f"--{name.replace('_', '-')}", str(value)]
    call += ["--environment-options", "max_episode_steps=5", "--output", "study"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    at_work = subprocess.Popen(
        call, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: max(evaluated(tmp_path / "study", 0), default=0) >= 1)
    at_work.send_signal(signal.SIGINT)
    out, err = at_work.communicate(timeout=60)
    assert (at_work.returncode, err) == (128 + signal.SIGINT, "")
    assert "1 trials: 1 running." in out
    assert out.rstrip().endswith("Stopped. Continue with the same command.")
    [run] = (tmp_path / "study" / "trials" / "0000").iterdir()
    [row] = list(csv.DictReader((tmp_path / "study" / "trials.csv").read_text().splitlines()))
    assert row["state"] == "running"
    steps = Run(run).agent().step
    assert steps >= Run(run).evaluations()[-1]["step"]
    assert (run / ".lock").read_text() == ""  # nobody works on it


# ---------------------------------------------------------------------------------------------------- a user's own
OWN = """
from dataclasses import dataclass
from duetto.algorithms.options import NonNegative
from duetto.algorithms.ddpg import DDPG

@dataclass(frozen=True)
class Mine(DDPG):
    \"\"\"DDPG by another name.\"\"\"

    warmth: NonNegative = 0.5
    \"\"\"Of no use.\"\"\"
"""


def test_an_algorithm_from_a_file_is_searched_by_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    """With what its runs have to say, said once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    (tmp_path / "mine.py").write_text(OWN)
    call = ["tune", "./mine.py:Mine", "Pendulum-v1", "--trials", "1", "--seeds", "2", "--json"]
    for name, value in {**RUN, **FIXED, "hidden": 8, "random_steps": 100}.items():
        call += [f"--{name.replace('_', '-')}", str(value)]
    with pytest.raises(SystemExit) as ended:
        main([*call, "--environment-options", "max_episode_steps=5"])
    found = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert found["best"]["options"]["warmth"] == 0.5
    assert [Path(run).name for run in found["runs"]] == ["mine-Pendulum-v1-s0", "mine-Pendulum-v1-s1"]
    [notice] = found["notices"]
    assert notice.startswith("trials/0000/mine-Pendulum-v1-s0: 60 steps are too few: all actions will be random")


def planned(algorithm: str, seeds: int = 2) -> Plan:
    kind, origin = named(algorithm) if ":" in algorithm else (duetto.DDPG, None)
    return planned_study(RunSpec(kind(**FIXED), "Pendulum-v1", RunOptions(**RUN), origin=origin), seeds)


def test_an_algorithms_file_that_was_edited_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its trials would be of two codes. Put back, the study continues; one of the built-in algorithm is another."""
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    own = OWN.replace("import DDPG", "import DDPG as Base").replace("Mine(DDPG)", "DDPG(Base)")
    file = tmp_path / "mine.py"
    before, after = (
        f"mine.py:DDPG (sha256 {hashlib.sha256(text.encode()).hexdigest()[:8]})" for text in (own, own + "#")
    )
    file.write_text(own)
    planned(f"{file}:DDPG").record(tmp_path / "study")
    planned(f"{file}:DDPG").record(tmp_path / "study")
    file.write_text(own + "#")
    with pytest.raises(UsageError) as raised:
        planned(f"{file}:DDPG").record(tmp_path / "study")
    assert f'algorithm.from was "{before}", is now "{after}". Give the same options' in str(raised.value)
    assert "and restore edited files; or start a new one with --output." in str(raised.value)
    with pytest.raises(UsageError, match=r'algorithm.from was "mine.py.*", is now "Duetto"'):
        planned("ddpg").record(tmp_path / "study")
    file.write_text(own)
    planned(f"{file}:DDPG").record(tmp_path / "study")


# ---------------------------------------------------------------------------------------------------- failures
def test_failures_are_kept_apart_and_do_not_end_the_study(tmp_path: Path):
    """An environment that raises, learning that diverges, and options that do not go together."""
    (tmp_path / "file").touch()
    search = {"critic_learning_rate": {"choices": [1e-3, 1e30]}, "unroll": {"choices": [5, 20]}}
    found = tuned(
        tmp_path / "study",
        Once,
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


def test_a_study_without_a_trial_that_is_complete_is_an_error(tmp_path: Path):
    """On an environment that this script alone has registered."""
    gymnasium.register("Scripted-v0", entry_point=lambda: Short())
    with pytest.raises(duetto.DuettoError, match=r"None of the 1 trials in .* is complete.*diverged"):
        tuned(tmp_path / "study", "Scripted-v0", trials=1, seeds=1, critic_learning_rate=1e30, search={"tau": "auto"})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"trials": 0}, "trials is 0; it must be at least 1"),
        ({"jobs": 0}, "jobs is 0"),
        ({"seeds": 0}, "seeds is 0"),
        ({"evaluate_every": 0}, "a study compares evaluations"),
        ({"policy_delay": 2}, "tune has no option 'policy_delay'. It has: steps, "),
        ({"actors": 1}, "tune has no option 'actors'. It has: steps, "),  # and no cluster, either
        ({"environment": Short()}, "cannot share one environment object"),
        ({"discount": 0.9}, "discount is given a value and to be searched"),
        ({"search": "none.yaml"}, "search file none.yaml cannot be read"),
    ],
)
def test_mistakes_show_before_anything_is_written(tmp_path: Path, options: dict[str, Any], sentence: str):
    with pytest.raises(UsageError) as raised:
        tuned(tmp_path / "study", **options)
    assert sentence in str(raised.value)
    assert not (tmp_path / "study").exists()
