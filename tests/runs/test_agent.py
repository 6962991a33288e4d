"""`duetto.load`: a trained agent acts, on either framework, with no environment and no code from the run's folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from fake_run import same
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from line_environment import Components, Line
from small_runs import StopAt, assert_same, checkpoints, small, train
from toy_networks import actor, critic

import duetto
from duetto.environments import Layout, to_gymnasium
from duetto.errors import CheckpointError, UsageError
from duetto.runs.agent import observed
from duetto.runs.run import Run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("made"), steps=150, environment=Line)


def observations(environment: gymnasium.Env, count: int = 20) -> list[Any]:
    """What the environment really gives, over a few episodes."""
    environment.action_space.seed(0)
    seen = [environment.reset(seed=0)[0]]
    while len(seen) < count:
        obs, *_, truncated, _ = environment.step(environment.action_space.sample())
        seen += [environment.reset()[0]] if truncated else [obs]
    return seen


def test_it_acts_as_in_training(tmp_path: Path):
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


def test_last_best_and_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
    with pytest.raises(CheckpointError, match=r"has no checkpoint at step 40. It has checkpoints at 160, 200"):
        duetto.load(run.path, 40)
    with pytest.raises(UsageError, match="checkpoint is 'first'; it must be last, best or a step"):
        duetto.load(run.path, "first")


@pytest.mark.parametrize("trained_on", ["torch", "jax"])
@pytest.mark.parametrize("environment", [Line, Components])
def test_what_one_framework_trained_acts_on_the_other(tmp_path: Path, trained_on: str, environment: Any):
    algorithm = small(normalize_observations="sampled")
    run = train(tmp_path, algorithm, environment, steps=60, backend=trained_on)
    one, two = (duetto.load(run.path, backend=backend) for backend in ("torch", "jax"))
    seen = observations(environment())
    actions = [one.act(obs) for obs in seen]
    np.testing.assert_allclose(actions, [two.act(obs) for obs in seen], rtol=1e-5, atol=1e-6)
    assert np.ptp(actions, axis=0).max() > 1e-4, "actions that do not depend on what is seen"
    assert duetto.load(run.path).config.run.backend == trained_on


def test_where_its_framework_is_missing_the_other_acts(made: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetto.runs.agent.installed", lambda backend: backend == "jax")
    agent = duetto.load(made.path)
    assert agent._learner.backend == "jax"
    assert made.config.run.backend == "torch"


def test_observations_in_parts_may_be_nested_or_flat(tmp_path: Path):
    run = train(tmp_path, environment=Components, steps=40)
    agent = duetto.load(run.path)
    for obs in observations(Components(), 5):
        flat = {f"inner/{name}": part for name, part in obs["inner"].items()} | {"twice": obs["twice"]}
        np.testing.assert_array_equal(agent.act(obs), agent.act(flat))
        plain = {"inner": {name: part.tolist() for name, part in obs["inner"].items()}, "twice": tuple(obs["twice"])}
        np.testing.assert_array_equal(agent.act(obs), agent.act(plain))  # as an environment may give them, too


# ---------------------------------------------------------------------------------------------------- own networks
def test_networks_of_the_users_own(tmp_path: Path, backend: str):
    networks = {"actor_network": actor(0.1), "critic_network": critic()}
    algorithm = small(**networks)
    whole = train(tmp_path, algorithm, backend=backend, name="whole")
    run = train(tmp_path, algorithm, backend=backend, name="stopped", callbacks=[StopAt(130)])
    with pytest.raises(UsageError, match=r"a custom network, .*networks=\{'actor_network': CustomNetwork"):
        duetto.load(run.path)
    with pytest.raises(UsageError, match="a custom network"):
        Run(run.path)
    assert_same(Run(whole.path, networks=networks), Run(run.path, networks=networks).resume())
    seen = observations(gymnasium.make("Pendulum-v1"), 5)
    one, two = (duetto.load(run.path, backend=kind, networks=networks) for kind in ("torch", "jax"))
    np.testing.assert_allclose([one.act(obs) for obs in seen], [two.act(obs) for obs in seen], rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------------------------- no code is run


def test_the_source_never_unpickles():
    """But what a process hands to one that it has started itself, by a pipe or through Ray, and copies in a process."""
    handed_over = {
        "environments/make_env.py": ["pickle.loads(buffer.getvalue())"],
        "environments/subproc.py": [
            "pickle.loads(self._pipe.recv_bytes())",
            "pickle.loads(pipe.recv_bytes())",
            "pickle.loads(packed)()])",
            "pickle.loads(packed))",
        ],
        "cluster/actor.py": ["pickle.loads(self.recipe)", "pickle.loads(packed)"],
        "runs/pool.py": ["pickle.loads(self._jobs.get())"],
        "cluster/actor_pool.py": ["pickle.loads(self._role)(self._share)"],
    }
    source = Path(duetto.__file__).parent
    for path in source.rglob("*.py"):
        text = path.read_text("utf-8")
        calls = handed_over.pop(path.relative_to(source).as_posix(), [])
        assert re.findall(r"pickle\.loads?\(.*\)", text) == calls, path
        assert calls or "import pickle" not in text, path
        assert "torch.load" not in text, path
        assert "allow_pickle=True" not in text, path
        safe = ["yaml.load(text, Loader=_Loader)"] if path.name == "safe_yaml.py" else []  # a SafeLoader's subclass
        assert re.findall(r"yaml\.load\(.*\)", text) == safe, path
    assert not handed_over


# ---------------------------------------------------------------------------------------------------- the contract
class Typed(Line):
    """Actions of another dtype than float32, and only those."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        low, high = (-3, 5) if "int" in dtype else (0.7, 1.1)  # float32 has a little less, and a little more
        self.action_space = Box(low, high, (2,), np.dtype(dtype).type)


@pytest.mark.parametrize("dtype", ["int64", "int32", "float64", "float32"])
def test_actions_are_of_the_spaces_own_dtype_and_within_its_bounds(tmp_path: Path, dtype: str):
    run = train(tmp_path, environment=lambda: Typed(dtype), steps=35, evaluate_every=0)
    agent, space = duetto.load(run.path), Typed(dtype).action_space
    for value in (-1e6, -0.5, 0.0, 0.5, 1e6):
        action = agent.act(np.full(2, value))
        assert action.dtype == dtype
        assert space.contains(action)
        assert all(space.contains(action) for action in agent.act_batch(np.full((3, 2), value), deterministic=False))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_batch_is_what_each_alone_would_be(made: Run, backend: str):
    agent = duetto.load(made.path, backend=backend)
    obs = np.linspace(-1, 1, 8).reshape(4, 2)
    actions = agent.act_batch(obs)
    assert (actions.shape, actions.dtype) == ((4, 2), np.float32)
    np.testing.assert_allclose(actions, [agent.act(one) for one in obs], rtol=1e-5)


def test_recurrent_agents_remember_each_environment_on_its_own(tmp_path: Path):
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
    with pytest.raises(UsageError, match=r"remembers 2 environment\(s\), and here are 3 observations. Call reset\(\)"):
        together.act_batch(np.zeros((3, 2)))
    together.reset()
    assert together.act_batch(np.zeros((3, 2))).shape == (3, 2)


def test_sampled_it_explores_as_in_training(made: Run, tmp_path: Path):
    obs = np.zeros(2)
    agent = duetto.load(made.path)
    noisy = {agent.act(obs, deterministic=False)[0] for _ in range(50)}
    assert len(noisy) > 40
    still = agent.act(obs)[0]
    assert len({agent.act(obs)[0] for _ in range(3)}) == 1
    # `exploration_noise` 0.1 of the range [-1, 3] is 0.2
    assert np.std(list(noisy)) == pytest.approx(0.2, rel=0.5)
    assert abs(np.mean(list(noisy)) - still) < 0.2
    again = duetto.load(made.path)
    assert noisy == {again.act(obs, deterministic=False)[0] for _ in range(50)}
    chooser = train(
        tmp_path, small("ppo", stochastic_evaluation=True), "CartPole-v1", steps=20, evaluate_every=0
    ).agent()
    assert {int(chooser.act(np.zeros(4), deterministic=False)) for _ in range(50)} == {0, 1}
    assert {int(chooser.act(np.zeros(4))) for _ in range(50)} == {0, 1}  # as in its evaluations
    assert len({int(chooser.act(np.zeros(4), deterministic=True)) for _ in range(50)}) == 1


def test_sampled_its_noise_begins_anew_with_each_episode(tmp_path: Path):
    """Ornstein-Uhlenbeck noise that nothing draws back to 0 is a random walk."""
    options = {"exploration": "ou", "exploration_noise": 0.01, "ou_theta": 0.0, "random_steps": 40}
    run = train(tmp_path, small("ddpg", **options), steps=40, evaluate_every=0)
    spread = {}
    for begins in (False, True):
        policy = run.agent().policy
        policy.explores = True
        obs, starts = np.zeros((200, 3), np.float32), np.full(200, begins)
        for _ in range(100):
            action = policy(obs, starts)
        spread[begins] = float(action.std())
    assert spread[True] == pytest.approx(0.01, rel=0.3)
    assert spread[False] == pytest.approx(0.1, rel=0.3)


PICTURE = Box(0, 255, (2, 2, 1), np.uint8)
VECTOR = Box(-np.inf, np.inf, (2,), np.float32)
PARTS = to_gymnasium(Layout(Components().observation_space).space)


@pytest.mark.parametrize(
    ("space", "given", "sentence"),
    [
        (VECTOR, np.zeros(3), r"an observation of shape \(3,\), its space says \(2,\).* act takes one"),
        (VECTOR, np.zeros((5, 2)), r"an observation of shape \(5, 2\), its space says \(2,\)"),
        (VECTOR, {"a": 1}, r"an observation that is a dict"),
        (VECTOR, [[1], [2, 3]], r"no observation \(ValueError\)"),
        (VECTOR, list(torch.zeros(2, requires_grad=True)), r"no observation \(RuntimeError\)"),
        (VECTOR, None, "an observation that is None"),
        (VECTOR, np.array([1e39, 0.0]), "is NaN, infinite or beyond float32"),
        (VECTOR, np.array([np.nan, 0.0]), "is NaN, infinite or beyond float32"),
        (PARTS, {"nothing": 1}, "an observation inner/still that is None"),
        (PICTURE, np.full((2, 2, 1), 0.5), "its space wants uint8"),
        (PICTURE, np.full((2, 2, 1), 300), "is not in its space"),
        (Discrete(4, start=2), 1, "is not in its space"),
        (Discrete(4), 2.7, "its space wants int64"),
        (MultiDiscrete([2, 5]), [2, 0], "is not in its space"),
    ],
)
def test_what_no_environment_of_the_agent_gives_is_refused(space: Any, given: Any, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        observed(Layout(space), given, several=False)
    for batch in (np.zeros(2), np.zeros((4, 3)), 0.5):
        with pytest.raises(UsageError, match="act takes one observation, act_batch several"):
            observed(Layout(VECTOR), batch, several=True)


def test_rewards_and_starts_are_one_for_each_observation(tmp_path: Path):
    agent = train(tmp_path, small(recurrent="lstm", recurrent_size=4), Line, steps=40, evaluate_every=0).agent()
    wrong: list[dict[str, Any]] = [{"rewards": [1, 2, 3]}, {"rewards": [0.0, float("nan")]}, {"starts": [1, 0, 0]}]
    for arguments in wrong:
        with pytest.raises(UsageError, match="Give one finite reward, and one start, for each of the 2"):
            agent.act_batch(np.zeros((2, 2)), **arguments)
    agent.act_batch(np.zeros((2, 2)), rewards=[1, 2], starts=[True, False])
