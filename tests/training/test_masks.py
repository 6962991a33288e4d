"""Action masks from outside: no forbidden action is ever taken, and none is hoped for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from masked_environments import Shown, Turnstile, Turnstiles
from small_runs import small, train
from vector_envs import Whole

import duetto
from duetto import environments, learners
from duetto.algorithms.base import Batch
from duetto.environments import make
from duetto.errors import DuettoError, UsageError
from duetto.networks import masks
from duetto.networks.spaces import Box, Discrete
from duetto.training import video

LSTM: dict[str, Any] = {"recurrent": "lstm", "recurrent_size": 8, "burn_in": 2, "unroll": 4, "overlap": 2}
CASES: dict[str, tuple[Any, Any]] = {
    "dqn": (lambda: small("dqn", exploration_end=0.5, evaluation_epsilon=0.5, n_step=2), Turnstile),
    "dqn priorities": (lambda: small("dqn", prioritized=True, double=False, evaluation_epsilon=0.5), Turnstile),
    "remembering": (lambda: small("dqn", **LSTM, random_steps=50, rescale_values=True), Turnstile),
    "discrete sac": (lambda: small("discretesac"), Turnstile),
    "ppo": (lambda: small("ppo", normalize_observations=True), Turnstile),
    "ppo, several": (lambda: small("ppo", stochastic_evaluation=True), Turnstiles),
    "ppo remembering": (lambda: small("ppo", recurrent="gru", recurrent_size=8, minibatches=1), Turnstiles),
}


@pytest.mark.parametrize("case", CASES)
def test_no_forbidden_action_is_ever_taken(case: str, tmp_path: Path) -> None:
    """The environment raises at one: in random steps, exploring, learning, evaluations and acting."""
    algorithm, environment = CASES[case]
    run = train(tmp_path, algorithm(), environment, steps=150, num_envs=2)
    run.evaluate(episodes=2)
    logged = [value for line in run.metrics() for name, value in line.items() if name.startswith("learn/")]
    assert max(map(abs, logged)) < 1e6  # what a forbidden action is worth is in no number
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


MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


@pytest.mark.parametrize("mode", [None, *MODES], ids=str)
def test_a_mask_belongs_to_its_observation(mode: AutoresetMode | None) -> None:
    """Every observation says where one is, and so what is allowed there; only where an episode terminated, all is."""
    stepper = make(Turnstile, num_envs=3) if mode is None else make(Whole([Turnstile] * 3, autoreset_mode=mode))
    random = np.random.default_rng(0)
    stepper.reset(0)
    ends = {"terminated": 0, "truncated": 0}
    for _ in range(60):
        transition, _ = stepper.step(stepper.sample_actions(random))
        for obs, over in (
            (transition.obs, np.zeros(len(transition.env), bool)),
            (transition.next_obs, transition.terminated),
        ):
            at, mask = masks.split_mask(obs)
            places = np.arange(4)
            right = (places == at) | (places == (at + 1) % 4) | over[:, None]
            assert np.array_equal(mask, right)
        ends["terminated"] += transition.terminated.sum()
        ends["truncated"] += transition.truncated.sum()
    assert min(ends.values()) > 5


@pytest.mark.parametrize("double", [True, False])
def test_a_target_looks_ahead_to_allowed_actions(double: bool, backend: Any) -> None:
    """y = 1 + .5 max over the allowed Q(s', a): the forbidden one is worth the most."""
    algorithm = duetto.DQN(double=double, dueling=False, hidden=(), tau=1.0, target_period=1)
    learner = learners.build(backend, algorithm, Box((1,), "float32", (-1.0,), (1.0,)), Discrete(3))
    parameters = learner.parameters()
    for values in parameters.values():
        for name, value in values.items():
            value[:] = np.array([9.0, 2.0, 4.0]) if name.endswith("bias") else 0.0
    learner.load_parameters(parameters)
    zeros, weight = np.zeros((2, 1), np.float32), np.ones(2, np.float32)
    mask = np.array([[False, True, True], [False, True, False]])
    batch = Batch(zeros, np.array([1, 1]), weight, 0.5 * weight, masks.with_mask(zeros, mask), weight)
    metrics = learner.update(batch)
    assert metrics.value("target_max") == pytest.approx(1 + 0.5 * 4)
    assert metrics.value("target_min") == pytest.approx(1 + 0.5 * 2)


class Wrong(Turnstile):
    """Gives a mask that is not right, from the `since`-th step on."""

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
        (None, 2, r"info has no action_mask, but that of its first reset had one. Give one in the info of every reset"),
        (np.zeros(4), 2, "forbids every action, and the episode did not terminate"),
        (np.ones(3), 0, r"an array of shape \(3,\).* Give 4 truth values in one flat array"),
        ([0, 1, 2, 1], 1, "a list of 4. Give 4 truth values"),
        ("all", 0, "that is the text 'all'"),
    ],
)
@pytest.mark.parametrize("vector", [False, True])
def test_masks_that_are_none(what: Any, since: int, sentence: str, vector: bool) -> None:
    wrong = partial(Wrong, what, since)
    stepper = make(Whole([wrong]) if vector else wrong)
    with pytest.raises(DuettoError, match=sentence):
        _some_steps(stepper)


def _some_steps(stepper: environments.VecEnv) -> None:
    stepper.reset(0)
    for _ in range(5):
        stepper.step(stepper.sample_actions(np.random.default_rng(0)))


def test_agents_want_their_mask(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("camera", [False, True])
def test_videos_and_watching(camera: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that raises at a forbidden action is filmed and shown; the mask is no part of the picture."""
    pytest.importorskip("imageio_ffmpeg")
    environment = partial(Shown, camera)
    algorithm = small("dqn", image_features=16, evaluation_epsilon=0.5)
    run = train(tmp_path, algorithm, environment, steps=40, evaluate_every=0)
    pictures: list[np.ndarray] = []
    monkeypatch.setattr(video, "_even", lambda frame: pictures.append(frame) or frame)
    run.video()
    assert len(pictures) in range(3, 7)
    assert {picture.shape for picture in pictures} == {(36, 36, 3)}
    assert [episode.length in range(3, 7) for episode in run.watch(episodes=3)] == [True] * 3


def test_in_processes_of_their_own() -> None:
    stepper = environments.make(Turnstile, num_envs=2, vectorization="subprocess")
    try:
        stepper.reset(0)
        for _ in range(8):
            stepper.step(stepper.sample_actions(np.random.default_rng(0)))
        assert stepper.masked
    finally:
        stepper.close()
