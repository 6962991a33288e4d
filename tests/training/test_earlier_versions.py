"""Run folders that an earlier Duetto wrote: its agents act as they did, and its runs go on.

`tests/fixtures/runs-0.1` was written by commit 45345da, before networks were composed; `acts.json`: what each did.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import duetto

FOLDER = Path(__file__).parents[1] / "fixtures" / "runs-0.1"
RUNS = sorted(path.name for path in FOLDER.iterdir())


def test_they_are_there():
    """Both frameworks, recurrent layers of an actor, a critic and a torso, and a policy with values."""
    assert RUNS == ["ddpg-jax", "dqn-torch", "ppo-torch", "r2d2-torch", "td3-lstm-torch", "td3-torch"]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("checkpoint", ["last", "best"])
def test_their_agents_act_as_they_did(name: str, checkpoint: str):
    agent = duetto.load(FOLDER / name, checkpoint=checkpoint)
    config = duetto.Run(FOLDER / name).config
    obs = np.linspace(-1, 1, 3 if "Pendulum" in config.environment else 4).astype(np.float32)
    acted = agent.act(obs)
    if checkpoint == "last":
        np.testing.assert_allclose(acted, json.loads((FOLDER / name / "acts.json").read_text()), rtol=1e-5)


@pytest.mark.parametrize("name", RUNS)
def test_their_runs_go_on(name: str, tmp_path: Path):
    folder = shutil.copytree(FOLDER / name, tmp_path / name)
    run = duetto.Run(folder).resume(steps=90)
    assert [line["step"] for line in run.metrics()][-2:] == [80, 90]
    assert [row["step"] for row in run.evaluations()] == [0, 30, 60, 90]
    again = duetto.Run(folder)
    assert again.config.run.steps == 90
    assert again.config.to_dict()["format"] == 2
