"""`duetto train ... --seeds`: one command trains several runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import SMALL, Command

from duetto.runs.run import Run


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_seeds_as_count_and_as_range_are_equal(duetto: Command, command: str):
    words = (command, "td3", "Pendulum-v1", "--json", *SMALL, "--steps", "60", "--dry-run", "--seeds")
    runs = [json.loads(duetto(*words, seeds).out)["runs"] for seeds in ("3", "0-2")]
    assert len(runs[0]) == 3
    assert [one | {"command": ""} for one in runs[0]] == [one | {"command": ""} for one in runs[1]]


def test_train_with_seeds_reports_each_run(train: Command, tmp_path: Path):
    out = train("--seeds", "0,2", "--json", "--evaluate-every", "0").printed()
    said = json.loads(out)["runs"]
    assert [one["run"] for one in said] == [f"{tmp_path}/runs/td3-Pendulum-v1-s{seed}" for seed in (0, 2)]
    assert [(one["step"], one["updates"], one["stopped"]) for one in said] == [(60, 40, False)] * 2
    assert [Run(tmp_path / one["run"]).config.run.seed for one in said] == [0, 2]


def test_train_with_seeds_prints_summary_and_names_folders(train: Command, tmp_path: Path):
    out = train("--seeds", "0,2", "--name", "try", "--stop-at-return", "-100000").printed()
    first, *rest = out.splitlines()
    assert first.startswith(
        "td3 on Pendulum-v1, torch on cpu, seeds 0, 2 side by side, preset Pendulum-v1, 60 steps each,"
    )
    assert rest[:2] == ["runs/try-s0/", "runs/try-s2/"]
    assert "2 of 2 seeds stopped. Continue with: duetto resume runs/try-s0 && duetto resume runs/try-s2" in rest
    assert rest[-1] == "See it: duetto plot runs/try-s0 runs/try-s2"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--seeds", "3-1"), "seeds is '3-1'; it must be a number of seeds (5), or seeds (0-4 or 0,3,9)"),
        (("--seed", "0"), "--seed cannot be combined with --seeds"),
        (("--actors", "2"), "--actors cannot be combined with --seeds"),
        (("--track", "wandb"), "--track cannot be combined with --seeds"),
        (("--recurrent", "lstm"), "td3 has recurrent networks here"),
        (("--time-limit", "-1"), "must be"),
    ],
)
def test_options_of_single_run_are_refused_with_seeds(
    train: Command, tmp_path: Path, options: tuple[str, ...], sentence: str
):
    code, _, err = train("--seeds", "0-3", *options)
    assert code == 2
    assert sentence in err
    assert not list(tmp_path.glob("runs/*"))
