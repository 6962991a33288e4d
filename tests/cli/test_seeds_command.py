"""`duetto train ... --seeds`: several runs by one command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from commands import SMALL, Command

from duetto.runs.run import Run


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_how_many_and_which_mean_the_same(duetto: Command, command: str):
    words = (command, "td3", "Pendulum-v1", "--json", *SMALL, "--steps", "60", "--dry-run", "--seeds")
    runs = [json.loads(duetto(*words, seeds).out)["runs"] for seeds in ("3", "0-2")]
    assert len(runs[0]) == 3
    assert [one | {"command": ""} for one in runs[0]] == [one | {"command": ""} for one in runs[1]]


def test_of_a_study_too(duetto: Command):
    words = ("tune", "td3", "Pendulum-v1", "--json", *SMALL, "--steps", "60", "--trials", "1")
    first, second = (json.loads(duetto(*words, "--seeds", seeds, "--output", seeds).out) for seeds in ("2", "0-1"))
    assert len(first["trials"][0]["seeds"]) == 2
    assert first["trials"] == second["trials"]


def test_a_run_for_each_is_made_and_told_of(train: Command, tmp_path: Path):
    out = train("--seeds", "0,2", "--json", "--evaluate-every", "0").printed()
    said = json.loads(out)["runs"]
    assert [one["run"] for one in said] == [f"{tmp_path}/runs/td3-Pendulum-v1-s{seed}" for seed in (0, 2)]
    assert [(one["step"], one["updates"], one["stopped"]) for one in said] == [(60, 40, False)] * 2
    assert [Run(tmp_path / one["run"]).config.run.seed for one in said] == [0, 2]


def test_one_command_s_words_are_of_all_and_a_name_is_for_each(train: Command, tmp_path: Path):
    out = train("--seeds", "0,2", "--name", "try", "--stop-at-return", "-100000").printed()
    first, *rest = out.splitlines()
    assert first == "td3 on Pendulum-v1, torch on cpu, seeds 0, 2 side by side, preset Pendulum-v1, 60 steps each"
    assert rest[:2] == ["runs/try-s0/", "runs/try-s2/"]
    assert "2 of 2 seeds stopped. Continue with: duetto resume runs/try-s0" in rest
    assert rest[-1] == "See it: duetto plot runs/try-s0 runs/try-s2"


def test_a_dry_run_is_the_configuration_of_each(train: Command, tmp_path: Path):
    out = train("--seeds", "0,2", "--dry-run").printed()
    assert [one["run"]["seed"] for one in yaml.safe_load_all(out)] == [0, 2]
    assert [one["run"]["seed"] for one in yaml.safe_load_all(train("--seeds", "3", "--dry-run").out)] == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--seeds", "3-1"), "seeds is '3-1'; it must be how many, 5, or which: 0-4, or 0,3,9"),
        (("--seed", "0"), "--seed is one seed, --seeds are several"),
        (("--actors", "2"), "--actors is of a cluster"),
        (("--track", "wandb"), "--track follows one run"),
        (("--recurrent", "lstm"), "td3 has recurrent networks here"),
        (("--time-limit", "-1"), "must be"),
    ],
)
def test_what_goes_with_one_run_only_is_refused(
    train: Command, tmp_path: Path, options: tuple[str, ...], sentence: str
):
    code, _, err = train("--seeds", "0-3", *options)
    assert code == 2
    assert sentence in err
    assert not list(tmp_path.glob("runs/*"))
