"""Exact resume of registered environments: the docs list exactly the environments that start new episodes."""

from __future__ import annotations

import importlib.util
import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from gymnasium.envs.registration import registry
from resume_checks import assert_equal, record

from duetto.environments import make
from duetto.errors import UsageError

PAGE = Path(__file__).parents[2] / "docs" / "built" / "resume.md"
PACKAGES = {  # the package to import, and prefixes of the entry points that it registers
    "gymnasium": ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text", "gymnasium.envs.mujoco"),
    "Box2D": ("gymnasium.envs.box2d",),
    "pybullet_envs_gymnasium": ("pybullet_envs_gymnasium",),
    "minigrid": ("minigrid",),
}
ATARI_GAMES = ["ALE/Breakout-v5", "ALE/MontezumaRevenge-v5", "ALE/Pong-v5"]  # all games are saved in the same way

pytestmark = pytest.mark.filterwarnings("ignore")  # about old versions of environments, and from SWIG


def installed_ids() -> list[str]:
    """Return every registered id of the installed packages."""
    there = [package for package in PACKAGES if importlib.util.find_spec(package)]
    for package in there:
        importlib.import_module(package)
    entry_points = tuple(entry for package in there for entry in PACKAGES[package])
    ids = sorted(name for name, spec in registry.items() if str(spec.entry_point).startswith(entry_points))
    return ids + (ATARI_GAMES if importlib.util.find_spec("ale_py") else [])


def documented_ids() -> set[str]:
    """Return the ids that the page lists."""
    [sentence] = re.findall(r"<!-- start new episodes -->(.*?)<!-- end -->", PAGE.read_text("utf-8"), re.DOTALL)
    return set(re.findall(r"`([\w-]+-v\d+)`", sentence))


def resumes_exactly(name: str, most: int = 400, into: int = 30, after: int = 300) -> bool:
    """Resume two environments in their third episode, or after `most` steps, and compare the next steps.

    Return False if one of them starts a new episode. Fail if both resume but the steps differ.
    Raise UsageError if the environment cannot be made.
    """
    with closing(make(name, num_envs=2)) as first, closing(make(name, num_envs=2)) as second:
        first.reset(7)
        random, ended = np.random.default_rng(0), np.zeros(2, int)
        for _ in range(most):
            for episode in first.step(first.sample_actions(random))[1]:
                ended[episode.env] += 1
            if ended.min() >= 2:
                break
        record(first, random, into)
        second.load_state_dict(first.state_dict())
        if not second.resumed_exactly:
            return False
        numbers = random.bit_generator.state
        expected = record(first, random, after)
        random.bit_generator.state = numbers
        assert_equal(expected, record(second, random, after))
        return True


@pytest.mark.parametrize(
    "name",
    [
        *("FrozenLake-v1", "Blackjack-v1", "Taxi-v4", "CliffWalkingSlippery-v1"),
        *("HalfCheetah-v5", "Ant-v5", "Pendulum-v1", "CartPole-v1", "LunarLander-v3", "BipedalWalker-v3"),
        *("AntBulletEnv-v0", "MiniGrid-Dynamic-Obstacles-8x8-v0", "BabyAI-BossLevel-v0"),
    ],
)
def test_environments_of_each_package_resume_exactly(name: str) -> None:
    if name not in installed_ids():
        pytest.skip("its package is not installed")
    assert resumes_exactly(name)


def test_documented_environments_start_new_episodes_on_resume() -> None:
    for name in documented_ids() & set(installed_ids()):
        assert not resumes_exactly(name), name


@pytest.mark.slow
def test_docs_list_every_environment_that_resumes_inexactly() -> None:
    """Takes a minute: 222 ids if all packages are installed, of which seven cannot be made."""
    inexact = set()
    for name in installed_ids():
        try:
            if not resumes_exactly(name):
                inexact.add(name)
        except UsageError:  # MiniGrid's pictures are not on PyPI; MuJoCo 3 has no Pusher-v4
            continue
    assert inexact == documented_ids() & set(installed_ids())
