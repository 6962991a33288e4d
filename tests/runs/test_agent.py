"""`duetto.load`: agents act on either framework without an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_run import same
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from line_environment import Components, Line
from policy_environments import collect_observations
from small_runs import checkpoints, small, train

import duetto
from duetto.environments import Layout, to_gymnasium
from duetto.errors import UsageError
from duetto.runs.agent import to_batch
from duetto.runs.run import Run


@pytest.fixture(scope="module")
def line_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("made"), steps=150, environment=Line)


def test_agent_acts_as_in_training(tmp_path: Path):
    """The policy's [-1, 1] and the bounds [-1, 3] and [2, 2.5]: a = low + (a + 1) / 2 (high - low)."""
    policies: list[np.ndarray] = []
    obs = np.array([[0.3, 0.3]], np.float32)
    run = train(
        tmp_path,
        small(normalize_observations="collected"),
        Line,
        steps=60,
        callbacks=[lambda trainer: policies.append(trainer.policy(obs))],
    )
    low, high = np.array([-1, 2]), np.array([3, 2.5])
    wanted = low + (policies[-1][0] + 1) / 2 * (high - low)
    np.testing.assert_allclose(duetto.load(run.path).act([0.3, 0.3]), wanted, rtol=1e-6)


def test_load_selects_last_best_or_step_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept: dict[int, Any] = {}
    run = train(
        tmp_path, callbacks=[lambda s: kept.update({s.step: s.learner.parameters()}) if s.step % 40 == 0 else None]
    )
    best = checkpoints(run).load_best().step
    for checkpoint, step in (("last", 200), (200, 200), ("160", 160), (160, 160), ("best", best)):
        agent = duetto.load(run.path, checkpoint)
        assert agent.step == step
        if step in kept:
            assert same(agent._learner.parameters(), kept[step])


def test_agent_uses_other_framework_if_its_own_is_missing(line_run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetto.runs.agent.installed", lambda backend: backend == "jax")
    agent = duetto.load(line_run.path)
    assert agent._learner.backend == "jax"
    assert line_run.config.run.backend == "torch"


def test_dict_observations_may_be_nested_or_flat(tmp_path: Path):
    run = train(tmp_path, environment=Components, steps=40)
    agent = duetto.load(run.path)
    for obs in collect_observations(Components(), 5):
        flat = {f"inner/{name}": part for name, part in obs["inner"].items()} | {"twice": obs["twice"]}
        np.testing.assert_array_equal(agent.act(obs), agent.act(flat))
        plain = {"inner": {name: part.tolist() for name, part in obs["inner"].items()}, "twice": tuple(obs["twice"])}
        np.testing.assert_array_equal(agent.act(obs), agent.act(plain))  # plain Python values


# ---------------------------------------------------------------------------------------------------- actions
class TypedActions(Line):
    """A Line whose actions have another dtype than float32."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        low, high = (-3, 5) if "int" in dtype else (0.7, 1.1)  # float32 rounds these bounds to values outside them
        self.action_space = Box(low, high, (2,), np.dtype(dtype).type)


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_actions_have_the_dtype_and_bounds_of_the_space(tmp_path: Path, dtype: str):
    run = train(tmp_path, environment=lambda: TypedActions(dtype), steps=35, evaluate_every=0)
    agent, space = duetto.load(run.path), TypedActions(dtype).action_space
    for value in (-1e6, -0.5, 0.0, 0.5, 1e6):
        action = agent.act(np.full(2, value))
        assert action.dtype == dtype
        assert space.contains(action)
        assert all(space.contains(action) for action in agent.act_batch(np.full((3, 2), value), deterministic=False))


def test_act_batch_equals_act_per_observation(line_run: Run):
    agent = duetto.load(line_run.path)
    obs = np.linspace(-1, 1, 8).reshape(4, 2)
    actions = agent.act_batch(obs)
    assert (actions.shape, actions.dtype) == ((4, 2), np.float32)
    np.testing.assert_allclose(actions, [agent.act(one) for one in obs], rtol=1e-5)


def test_recurrent_agent_keeps_hidden_state_per_environment(tmp_path: Path):
    algorithm = small("ppo", recurrent="lstm", recurrent_size=8, minibatches=1)
    together, alone = (train(tmp_path, algorithm, Line, steps=20, evaluate_every=0).agent() for _ in range(2))
    obs = np.random.default_rng(0).normal(size=(6, 2, 2))
    starts = np.zeros((6, 2), bool)
    starts[3, 1] = True
    found = [together.act_batch(obs[t], starts=starts[t] | (t == 0), rewards=[t, -t]) for t in range(6)]
    for env in range(2):
        alone.reset()
        for t in range(6):
            if starts[t, env]:
                alone.reset()
            np.testing.assert_allclose(
                alone.act(obs[t, env], reward=0.0 if starts[t, env] else (t, -t)[env]), found[t][env], rtol=1e-5
            )
    with pytest.raises(
        UsageError, match=r"hidden states of 2 environment\(s\), but got 3 observations. Call reset\(\)"
    ):
        together.act_batch(np.zeros((3, 2)))
    together.reset()
    assert together.act_batch(np.zeros((3, 2))).shape == (3, 2)
    wrong: list[dict[str, Any]] = [{"rewards": [1, 2]}, {"rewards": [0.0, 1.0, np.nan]}, {"starts": [1, 0]}]
    for arguments in wrong:
        with pytest.raises(UsageError, match="Give one finite reward, and one start, for each of the 3"):
            together.act_batch(np.zeros((3, 2)), **arguments)


def test_stochastic_agent_explores_as_in_training(line_run: Run, tmp_path: Path):
    obs = np.zeros(2)
    agent = duetto.load(line_run.path)
    noisy = {agent.act(obs, deterministic=False)[0] for _ in range(50)}
    assert len(noisy) > 40
    still = agent.act(obs)[0]
    assert len({agent.act(obs)[0] for _ in range(3)}) == 1
    # `exploration_noise` 0.1 of the range [-1, 3] is 0.2
    assert np.std(list(noisy)) == pytest.approx(0.2, rel=0.5)
    assert abs(np.mean(list(noisy)) - still) < 0.2
    again = duetto.load(line_run.path)
    assert noisy == {again.act(obs, deterministic=False)[0] for _ in range(50)}
    chooser = train(
        tmp_path, small("ppo", stochastic_evaluation=True), "CartPole-v1", steps=20, evaluate_every=0
    ).agent()
    assert {int(chooser.act(np.zeros(4), deterministic=False)) for _ in range(50)} == {0, 1}
    assert {int(chooser.act(np.zeros(4))) for _ in range(50)} == {0, 1}  # like its evaluations
    assert len({int(chooser.act(np.zeros(4), deterministic=True)) for _ in range(50)}) == 1


PICTURE = Box(0, 255, (2, 2, 1), np.uint8)
VECTOR = Box(-np.inf, np.inf, (2,), np.float32)
PARTS = to_gymnasium(Layout(Components().observation_space).space)


@pytest.mark.parametrize(
    ("space", "given", "sentence"),
    [
        (VECTOR, np.zeros(3), r"an observation of shape \(3,\), its space says \(2,\).* act takes one"),
        (VECTOR, [[1], [2, 3]], r"no observation \(ValueError\)"),
        (VECTOR, list(torch.zeros(2, requires_grad=True)), r"no observation \(RuntimeError\)"),
        (VECTOR, None, "an observation that is None"),
        (VECTOR, np.array([np.nan, 0.0]), "is NaN, infinite or beyond float32"),
        (PARTS, {"nothing": 1}, "has no inner/still, inner/when"),
        (PICTURE, np.full((2, 2, 1), 0.5), "its space wants uint8"),
        (Discrete(4, start=2), 1, "is not in its space"),
        (MultiDiscrete([2, 5]), [2, 0], "is not in its space"),
    ],
)
def test_observations_outside_the_space_are_refused(space: Any, given: Any, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        to_batch(Layout(space), given, several=False)
    for batch in (np.zeros(2), np.zeros((4, 3)), 0.5):
        with pytest.raises(UsageError, match="act takes one observation, act_batch several"):
            to_batch(Layout(VECTOR), batch, several=True)
