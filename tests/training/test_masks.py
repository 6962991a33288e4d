"""Action masks: no forbidden action is taken, and none affects a target."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from masked_environments import Shown, Turnstile, Turnstiles
from small_runs import small, train
from vector_envs import Whole

from duetto.environments import VecEnv, make
from duetto.errors import DuettoError, UsageError
from duetto.training import video

CASES: dict[str, tuple[Any, Any]] = {
    "dqn": (lambda: small("dqn", prioritized=True, evaluation_epsilon=0.5, exploration_end=0.5, n_step=2), Turnstile),
    "ppo": (lambda: small("ppo", normalize_observations=True, stochastic_evaluation=True), Turnstiles),
    "recurrent ppo": (lambda: small("ppo", recurrent="gru", recurrent_size=8, minibatches=1), Turnstiles),
}


@pytest.mark.parametrize("case", CASES)
def test_no_forbidden_action_is_ever_taken(case: str, tmp_path: Path) -> None:
    """Covers random steps, exploration, evaluations and agents. The environment raises for a forbidden action."""
    algorithm, environment = CASES[case]
    run = train(tmp_path, algorithm(), environment, steps=150, num_envs=2)
    run.evaluate(episodes=2)
    logged = [value for line in run.metrics() for name, value in line.items() if name.startswith("learn/")]
    assert max(map(abs, logged)) < 1e6  # no metric contains the value of a forbidden action
    agent = run.agent()
    assert agent.masked
    for deterministic in (True, False):
        agent.reset()
        env = environment()
        obs, info = env.reset(seed=3)
        over = False
        while not over:
            action = agent.act(obs, deterministic=deterministic, action_mask=info["action_mask"])
            obs, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated


class WrongMask(Turnstile):
    """Returns a wrong mask from step `since` on."""

    def __init__(self, what: Any, since: int) -> None:
        super().__init__()
        self.what, self.since, self.seen = what, since, 0

    def see(self) -> Any:
        obs, info = super().see()
        self.seen += 1
        if self.seen > self.since:
            info = {} if self.what is None else {"action_mask": self.what}
        return obs, info

    def step(self, action: Any) -> Any:
        self.time += 1
        obs, info = self.see()
        return obs, 0.0, False, self.time == 3, info


@pytest.mark.parametrize(
    ("what", "since", "sentence"),
    [
        (None, 2, r"info has no action_mask, but the first reset's info had one. Return info\['action_mask'\] from"),
        (np.zeros(4), 2, "forbids every action, and the episode did not terminate"),
        (np.ones(3), 0, r"an array of shape \(3,\).* Give 4 truth values in one flat array"),
        ([0, 1, 2, 1], 1, "a list of 4. Give 4 truth values"),
        ("all", 0, "that is the text 'all'"),
    ],
)
@pytest.mark.parametrize("vector", [False, True])
def test_wrong_masks_are_refused(what: Any, since: int, sentence: str, vector: bool) -> None:
    wrong = partial(WrongMask, what, since)
    stepper = make(Whole([wrong]) if vector else wrong)
    with pytest.raises(DuettoError, match=sentence):
        take_random_steps(stepper)


def take_random_steps(stepper: VecEnv) -> None:
    stepper.reset(0)
    for _ in range(5):
        stepper.step(stepper.sample_actions(np.random.default_rng(0)))


def test_agents_require_a_mask(tmp_path: Path) -> None:
    agent = train(tmp_path, small("dqn"), Turnstile, steps=40, evaluate_every=0).agent()
    obs = np.zeros(1, np.float32)
    with pytest.raises(UsageError, match=r"it must be the environment's info\['action_mask'\], 4 truth"):
        agent.act(obs)
    with pytest.raises(UsageError, match="4 truth values for each observation"):
        agent.act(obs, action_mask=[1, 0])
    with pytest.raises(UsageError, match="with an allowed action in each"):
        agent.act(obs, action_mask=[0, 0, 0, 0])
    for only in range(4):
        assert agent.act(obs, action_mask=np.eye(4)[only]) == only
    assert agent.act_batch(np.zeros((4, 1)), action_mask=np.eye(4)).tolist() == [0, 1, 2, 3]


def test_video_and_watch_apply_action_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent observes images, which do not contain the mask."""
    pytest.importorskip("imageio_ffmpeg")
    environment = partial(Shown, camera=True)
    algorithm = small("dqn", image_features=16, evaluation_epsilon=0.5)
    run = train(tmp_path, algorithm, environment, steps=40, evaluate_every=0)
    pictures: list[np.ndarray] = []
    monkeypatch.setattr(video, "_even", lambda frame: pictures.append(frame) or frame)
    run.video()
    assert len(pictures) in range(3, 7)
    assert {picture.shape for picture in pictures} == {(36, 36, 3)}
    assert [episode.length in range(3, 7) for episode in run.watch(episodes=3)] == [True] * 3
