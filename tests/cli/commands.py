"""Call the command line in tests, and return its exit code and output."""

from __future__ import annotations

import shlex
import time
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
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    def done(self) -> Result:
        """Check that the command succeeded, and return its result."""
        assert self.code == 0, self.err
        return self

    def printed(self) -> str:
        """Check that the command succeeded without errors or notices, and return its output."""
        assert (self.code, self.err) == (0, "")
        return self.out


Command = Callable[..., Result]


def called(capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs `duetto` in this process.

    It takes a text, which is split into words, and further arguments, which may contain spaces.
    """

    def call(text: str = "", *arguments: str | Path) -> Result:
        with pytest.raises(SystemExit) as ended:
            main([*shlex.split(text), *map(str, arguments)])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        assert "Traceback" not in captured.out + captured.err
        return Result(ended.value.code, captured.out, captured.err)

    return call


def wait_for(what: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def write_minari(folder: Path) -> None:
    """Write a Minari dataset of two episodes of Pendulum-v1 with full torque."""
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
