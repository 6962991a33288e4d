"""The sampler with a cheap objective: draws, reports, pruning and a damaged journal."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duetto.algorithms import TD3
from duetto.errors import CheckpointError, UsageError
from duetto.tools.tune.sampler import Sampler, TrialRecord
from duetto.tools.tune.space import space

SPACE = space(TD3(), {"tau": "auto", "discount": "auto", "hidden": "auto", "policy_delay": "auto"}, only=True)
START = {name: getattr(TD3(), name) for name in SPACE}


def sampler(folder: Path, seed: int = 0, **options: Any) -> Sampler:
    return Sampler(folder / "journal.jsonl", SPACE, seed, **{"start": START, **options})


def objective(trial: TrialRecord) -> float:
    """Return the score of a trial: best at tau 0.02, independent of the other options."""
    return -abs(math.log(trial.options["tau"] / 0.02))


def run_trials(made: Sampler, count: int) -> list[dict[str, Any]]:
    for trial in (made.ask() for _ in range(count)):
        made.end(trial.number, "complete", objective(trial), (objective(trial),))
    return [trial.options for trial in made.trials()]


def test_first_trial_is_center_and_others_follow_seed(tmp_path: Path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    first = run_trials(sampler(tmp_path / "a"), 14)
    assert first[0] == START
    assert run_trials(sampler(tmp_path / "b"), 14) == first
    assert run_trials(sampler(tmp_path / "c", seed=1), 14)[1:] != first[1:]
    assert len({str(options) for options in first}) > 10


def test_sampler_searches_near_good_trials(tmp_path: Path):
    made = sampler(tmp_path)
    run_trials(made, 40)
    late = [objective(trial) for trial in made.trials()[25:]]
    assert sum(late) / len(late) > -0.7  # random search has -1.4


def test_killed_study_continues_with_the_same_trials(tmp_path: Path):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = run_trials(sampler(tmp_path / "whole"), 14)
    run_trials(sampler(tmp_path / "killed"), 12)
    lost = sampler(tmp_path / "killed").ask()  # its end is never reported
    with (tmp_path / "killed" / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"op_code": 8, "wor')  # the process died in the middle of a line
    again = sampler(tmp_path / "killed")
    [found] = again.unfinished()
    assert found == lost
    again.end(found.number, "complete", objective(found))
    assert run_trials(again, 1) == whole


def test_journal_stores_reported_results(tmp_path: Path):
    made = sampler(tmp_path)
    numbers = [made.ask().number for _ in range(4)]
    made.report(0, 100, -3.0)
    made.report(0, 100, -5.0)  # a resumed run reports the step again; the first value counts
    made.end(0, "complete", -2.5, (-2.0, -3.0))
    made.end(1, "diverged", reason="learning has diverged")
    made.end(2, "failed", reason="the lever is stuck")
    made.report(3, 100, -9.0)
    made.end(3, "pruned")
    trials = sampler(tmp_path).trials()
    assert numbers == [0, 1, 2, 3]
    assert [trial.state for trial in trials] == ["complete", "diverged", "failed", "pruned"]
    assert [trial.value for trial in trials] == [-2.5, None, None, None]
    assert [trial.reason for trial in trials] == ["", "learning has diverged", "the lever is stuck", ""]
    assert trials[0].seeds == (-2.0, -3.0)


def test_trial_below_median_should_be_pruned(tmp_path: Path):
    made = sampler(tmp_path)
    for value in range(5):
        number = made.ask().number
        made.report(number, 100, float(value))
        assert not made.should_prune(number, 100)  # pruning starts after five complete trials
        made.end(number, "complete", float(value))
    number = made.ask().number
    made.report(number, 100, 1.9)  # the median is 2
    assert made.should_prune(number, 100)


def test_trial_is_compared_at_the_given_step(tmp_path: Path):
    """Seeds that train at the same time report in turn, so the largest step may be of the other seed."""
    made = sampler(tmp_path)
    for _ in range(5):
        number = made.ask().number
        made.report(number, 120, 0.0)
        made.report(number, 80, 10.0)
        made.end(number, "complete", 5.0)
    number = made.ask().number
    made.report(number, 120, 1.0)
    assert not made.should_prune(number, 120)
    made.report(number, 80, 1.0)
    assert made.should_prune(number, 80)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda lines: lines[40:],
    "an unknown operation": lambda lines: lines + b'{"op_code": 99, "worker_id": "x"}\n',
    "deep nesting": lambda lines: lines + b"[" * 99_999 + b"\n",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_journal_is_reported(tmp_path: Path, damage: Callable[[bytes], bytes]):
    run_trials(sampler(tmp_path), 2)
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(damage(journal.read_bytes()))
    with pytest.raises(CheckpointError, match=r"journal\.jsonl is damaged"):
        sampler(tmp_path)


def test_missing_optuna_names_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(UsageError, match=r"Tuning needs Optuna\. Install: pip install"):
        sampler(tmp_path)
