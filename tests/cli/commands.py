"""What the tests of the command line call, and what they get."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest

from duetto import environments
from duetto.tools.cli import main

SMALL_RUN = shlex.split(
    "--hidden 16 16 --backend torch --device cpu --threads 1 --evaluate-every 40 --evaluation-episodes 2 "
    "--checkpoint-every 30 --log-every 10"
)
SMALL = [*SMALL_RUN, *shlex.split("--batch-size 8 --random-steps 20 --learning-starts 20 --replay-capacity 100")]
SMALL_PPO = [*SMALL_RUN, *shlex.split("--rollout-steps 10 --epochs 2 --minibatches 2")]


class Result(NamedTuple):
    """What a command left on the terminal."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]


def called(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process: a text of words, and arguments that may have spaces."""

    def call(text: str = "", *arguments: str | Path) -> Result:
        with pytest.raises(SystemExit) as ended:
            main([*shlex.split(text), *map(str, arguments)])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        assert "Traceback" not in captured.out + captured.err
        return Result(ended.value.code, captured.out, captured.err)

    return call


def write_minari(folder: Path) -> None:
    """Two episodes of Pendulum-v1 with full torque, as a Minari dataset."""
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    env = gymnasium.make("Pendulum-v1")
    storage = MinariStorage.new(folder.absolute(), env.observation_space, env.action_space)
    for seed in range(2):
        stepper = environments.make("Pendulum-v1")
        stepper.reset(seed)
        obs, rewards = [stepper.obs[0]], []
        for _ in range(3):
            transition, _ = stepper.step(np.ones((1, 1), np.float32))
            obs.append(transition.next_obs[0])
            rewards.append(transition.reward[0])
        flags: dict[str, Any] = {"terminations": np.zeros(3, bool), "truncations": np.zeros(3, bool)}
        actions = np.full((3, 1), 2.0, np.float32)
        storage.update_episodes([EpisodeBuffer(observations=obs, rewards=rewards, actions=actions, **flags)])
