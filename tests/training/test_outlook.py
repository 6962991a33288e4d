"""What a run says about itself before it is too late: too few steps, a policy that learns no more."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from line_environment import Line
from small_runs import StopAt, small, train
from test_run import edit

from duetto.algorithms import ALGORITHMS, BC, DQN, PPO, SAC, TD3, Algorithm
from duetto.algorithms.idle import notes_of_idle, notes_of_idle_run, notes_of_replaced, notes_of_spaces
from duetto.errors import NonFiniteError
from duetto.networks.spaces import Box, Dict, Discrete
from duetto.networks.specs import CustomNetwork
from duetto.presets import presets
from duetto.runs.run import Run, start
from duetto.storage.config import RunOptions
from duetto.training.outlook import notes_ahead, notes_of_precision
from duetto.training.session import Session

MINE, NUMBERS = CustomNetwork(torch=object), Box((2,), "float32", (-1.0,), (1.0,))


def noted(folder: Path, algorithm: str = "td3", hyperparameters: dict[str, Any] | None = None, **options: Any):
    """What was said before the first step, and how many updates the run made."""
    sessions: list[Session] = []
    said: list[str] = []

    def look(session: Session) -> None:
        sessions.append(session)
        said.extend(session.notices)

    chosen = small(algorithm, **hyperparameters or {})
    options = {"backend": "torch", "device": "cpu", "threads": 1, "evaluate_every": 0} | options
    start(chosen, "Pendulum-v1", RunOptions(**options), runs_dir=folder, on_start=look)
    return said, sessions[0].learner.updates


class Choosing(Line):
    """Line with two actions."""

    def __init__(self, length: int = 10) -> None:
        super().__init__(length)
        self.action_space = gymnasium.spaces.Discrete(2)

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.see(), 1.0, False, self.time == self.length, {}


CASES: list[tuple[str, dict[str, Any], int, int, str]] = [
    ("td3", {"random_steps": 0}, 1, 31, "learning_starts is 30"),
    ("td3", {"random_steps": 0, "learning_starts": 0, "train_every": 7}, 1, 7, "is 0 and train_every is 7."),
    ("td3", {"random_steps": 0}, 4, 29, "learning_starts is 30"),  # the eighth vector step ends at step 32
    ("ppo", {}, 1, 16, "rollout_steps is 16 in 1 environment(s)"),
    ("ppo", {}, 2, 31, "rollout_steps is 16 in 2 environment(s)"),
]


@pytest.mark.parametrize(("algorithm", "hyperparameters", "num_envs", "first", "because"), CASES)
def test_a_run_that_ends_before_its_first_update_says_so(
    tmp_path: Path, algorithm: str, hyperparameters: dict[str, Any], num_envs: int, first: int, because: str
):
    run = {"algorithm": algorithm, "hyperparameters": hyperparameters, "num_envs": num_envs}
    said, updates = noted(tmp_path, steps=first, **run)
    assert said == []
    assert updates > 0
    [notice], updates = noted(tmp_path, steps=first - num_envs, **run)
    assert notice.startswith(f"{first - num_envs} steps are too few: there will be no update, because ")
    assert updates == 0
    assert because in notice


def test_only_random_actions_are_said_too(tmp_path: Path):
    [notice], updates = noted(tmp_path, steps=30)
    assert notice == (
        "30 steps are too few: there will be no update, because learning_starts is 30, and all actions will be random, "
        "because random_steps is 30. Give more --steps, or set these lower."
    )
    assert updates == 0
    [notice], updates = noted(tmp_path, hyperparameters={"learning_starts": 10}, steps=30)
    assert notice.startswith("30 steps are too few: all actions will be random, because random_steps is 30. Give")
    assert updates == 20
    assert noted(tmp_path, hyperparameters={"learning_starts": 10}, steps=31)[0] == []


def test_a_memory_that_holds_fewer_steps_of_an_environment_than_n_step(tmp_path: Path):
    options = {"n_step": 5, "batch_size": 4, "random_steps": 0, "learning_starts": 8}
    [said], _ = noted(tmp_path, hyperparameters=options | {"replay_capacity": 16}, num_envs=4, steps=40)
    assert said == (
        "replay_capacity keeps 4 steps of each environment, so returns are of 4 at most, though n_step is 5. Set "
        "replay_capacity to 20 or more."
    )
    assert noted(tmp_path, hyperparameters=options | {"replay_capacity": 20}, num_envs=4, steps=40)[0] == []


def test_a_run_that_goes_on_says_it_only_of_what_is_to_come(tmp_path: Path):
    said: list[str] = []
    run = train(tmp_path, small("ppo"), steps=15, evaluate_every=0)
    run.resume(on_start=lambda session: said.extend(session.notices))
    assert said == []  # nothing is left to do
    run.resume(steps=16, on_start=lambda session: said.extend(session.notices))
    assert said == []
    assert [line["learn/updates"] for line in Run(run.path).metrics()] == [2]  # 16 steps: the update is made
    stopped = train(tmp_path, small("ppo"), steps=15, evaluate_every=0, callbacks=[StopAt(5)])
    stopped.resume(on_start=lambda session: said.extend(session.notices))
    assert len(said) == 1


@pytest.mark.parametrize(
    ("steps", "num_envs", "said"),
    [
        (
            31,
            1,
            "the last 15 of 31 steps: rollout_steps is 16 in 1 .* With --steps 32 .*; --steps 16 leaves",
        ),
        (33, 2, "the last 2 of 34 steps"),  # 32 and one vector step: 6 %
        (
            47,
            2,
            "the last 16 of 48 steps: rollout_steps is 16 in 2 .* With --steps 64 .*; --steps 32 leaves",
        ),
        (159, 1, "the last 15 of 159 steps"),  # 9 %
    ],
)
def test_a_run_says_how_many_steps_at_its_end_it_does_not_learn_from(
    tmp_path: Path, steps: int, num_envs: int, said: str
):
    notices, updates = noted(tmp_path, "ppo", steps=steps, num_envs=num_envs)
    assert updates == 2 * (steps // (16 * num_envs))
    if "With" in said:
        assert re.search(said, notices[0]), notices
        assert len(notices) == 1
        steps = int(re.findall(r"--steps (\d+) \(", notices[0])[0])
    assert noted(tmp_path, "ppo", steps=steps, num_envs=num_envs)[0] == []


def test_a_run_that_goes_on_counts_what_its_rollout_holds_already(tmp_path: Path):
    said: list[str] = []
    run = train(tmp_path, small("ppo"), steps=40, evaluate_every=0, callbacks=[StopAt(20)])
    run.resume(steps=46, on_start=lambda session: said.extend(session.notices))
    assert [notice[:61] for notice in said] == ["Nothing will be learned from the last 14 of 46 steps: rollout"]
    said.clear()
    run.resume(steps=48, on_start=lambda session: said.extend(session.notices))
    assert said == []
    assert run.metrics()[-1]["learn/updates"] == 6


def test_a_run_that_goes_on_without_an_update_says_so_in_true_words(tmp_path: Path):
    run = train(tmp_path, steps=100, evaluate_every=0)
    run = edit(run, {"algorithm.learning_starts": 5000, "algorithm.random_steps": 1000})
    said: list[str] = []
    run.resume(steps=140, accept_changes=True, on_start=lambda session: said.extend(session.notices))
    assert said[1:] == [
        "From step 100 on, 40 steps are too few: there will be no update, because learning_starts is 5,000, and all "
        "actions will be random, because random_steps is 1,000. Give more --steps, or set these lower."
    ]
    assert [line["learn/updates"] for line in run.metrics()][-2:] == [70, 70]


# ---------------------------------------------------------------------------------------------------- looking back
def heard(folder: Path, algorithm: Any, environment: Any, **options: Any) -> list[str]:
    """All that a run said."""
    sessions: list[Session] = []
    train(
        folder,
        algorithm,
        environment,
        evaluate_every=0,
        callbacks=[sessions.append, *options.pop("also", [])],
        **options,
    )
    return sessions[0].notices


R2D2 = {"recurrent_size": 4, "burn_in": 12, "unroll": 4, "overlap": 12, "learn_from_start": False, "random_steps": 0}


@pytest.mark.parametrize(
    ("algorithm", "environment", "length", "cause"),
    [
        (small("r2d2", **R2D2), Choosing, 12, "A sequence needs an episode of more than 12 steps, since burn_in is 12"),
        (small("r2d2", **R2D2), Choosing, 10**9, ""),
        (small("dqn", train_at_episode_end=True), Choosing, 10**9, "an episode's end (train_at_episode_end), and no"),
        (small("dqn", train_at_episode_end=True), Choosing, 150, ""),
    ],
)
def test_a_run_that_learned_nothing_says_so_at_its_end(
    tmp_path: Path, algorithm: Any, environment: Any, length: int, cause: str
):
    said = heard(tmp_path, algorithm, environment, environment_options={"length": length})
    found = [
        notice for notice in said if notice.startswith("Nothing was learned: 200 steps were made, and no update. ")
    ]
    assert len(found) == bool(cause)
    assert cause in "".join(found)


def test_a_run_that_was_stopped_or_was_too_short_does_not_look_back(tmp_path: Path):
    waiting = small("dqn", train_at_episode_end=True)
    options: dict[str, Any] = {"environment_options": {"length": 10**9}}
    assert "Nothing" not in "".join(heard(tmp_path, waiting, Choosing, also=[StopAt(90)], **options))
    said = "".join(heard(tmp_path, waiting, Choosing, steps=20, **options))
    assert said.startswith("20 steps are too few")
    assert "Nothing" not in said


# ---------------------------------------------------------------------------------------------------- rewards
class Paid(Line):
    """Line, with a reward of its own."""

    def __init__(self, pay: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.pay = pay

    def step(self, action: np.ndarray) -> Any:
        obs, _, *rest = super().step(action)
        return obs, self.pay, *rest


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(("pay", "said"), [(1e37, 1), (-1e37, 1), (1e18, 1), (1e17, 0)])
def test_rewards_that_are_too_large_are_said_and_named_as_the_cause(tmp_path: Path, pay: float, said: int):
    sessions: list[Session] = []
    options: dict[str, Any] = {"evaluate_every": 0, "environment_options": {"pay": pay}, "callbacks": [sessions.append]}
    told = re.escape(f"Step 0: a reward of {abs(pay):.3g} in size may be too large to learn from: ")
    if abs(pay) == 1e37:
        with pytest.raises(NonFiniteError, match=f"{told}.* set normalize_rewards\\. The run on .* stopped"):
            train(tmp_path, small("ppo"), Paid, **options)
    else:
        train(tmp_path, small("ppo"), Paid, **options)
    assert len(sessions[0].notices) == said
    assert all(re.match(told, notice) for notice in sessions[0].notices)
    train(tmp_path, small("ppo", normalize_rewards=True), Paid, **options)
    assert sessions[-1].notices == []


# ---------------------------------------------------------------------------------------------------- PPO's symptoms
CHOICE, BOX = Discrete(2), Box((1,), "float32", (-1.0,), (1.0,))


@pytest.mark.parametrize(
    ("means", "action", "said"),
    [
        ({"approx_kl": 0.39, "entropy": 0.09}, CHOICE, ""),  # CartPole at a learning rate of 0.1: it learns
        ({"approx_kl": 20.7, "entropy": 0.0057}, CHOICE, "20.7 nats from the one that collected"),  # at 1: it does not
        ({"approx_kl": 0.0, "entropy": 2e-32}, CHOICE, "entropy is 0"),
        ({"approx_kl": 0.0, "entropy": 0.0}, Discrete(1), ""),
        ({"approx_kl": 0.0, "entropy": -3.7}, BOX, ""),  # differential: any number
        ({"approx_kl": 0.0, "entropy": -2.0}, Dict((("gear", CHOICE), ("thrust", BOX))), ""),  # so is a sum with one
        ({"approx_kl": 0.0, "entropy": 0.0}, Dict((("gear", CHOICE), ("horn", CHOICE))), "entropy is 0"),
        ({"approx_kl": 78.6, "entropy": 2.3}, BOX, "78.6 nats"),
        ({"updates": 3.0}, CHOICE, ""),  # a line without an update
    ],
)
def test_ppo_knows_its_symptoms(means: dict[str, float], action: Any, said: str):
    symptom = PPO().symptom(means, action)
    assert said in symptom
    assert bool(said) == bool(symptom)


@pytest.mark.parametrize("learning_rate", [3e-3, 1e6])
def test_a_policy_that_learns_no_more_is_said_once(tmp_path: Path, learning_rate: float):
    said: list[str] = []

    def listen(session: Session) -> None:
        said[:] = session.notices

    algorithm = small("ppo", learning_rate=learning_rate, rollout_steps=64)
    run = train(tmp_path, algorithm, "CartPole-v1", steps=512, evaluate_every=0, callbacks=[listen])
    assert run.metrics()[-1]["step"] == 512
    if learning_rate < 1:
        assert said == []
    else:
        [notice] = said
        assert notice.startswith("Step 75: The policy is ")
        assert "lower learning_rate" in notice


# ------------------------------------------------------------------------------------------------ options in vain
def test_options_without_effect_are_said_once_in_a_sentence_for_each_reason(tmp_path: Path):
    vain = {"burn_in": 3, "unroll": 9, "ou_theta": 0.3}
    said, _ = noted(tmp_path, hyperparameters=vain, steps=40)
    assert said == [
        "burn_in and unroll have no effect, because recurrent is none. Change that, or leave them out.",
        "ou_theta has no effect, because exploration is gaussian. Change that, or leave it out.",
    ]
    again: list[str] = []
    (run,) = (Run(path) for path in tmp_path.iterdir())
    run.resume(steps=50, on_start=lambda session: again.extend(session.notices))
    assert again == []


def test_a_runs_own_options_without_effect_are_said(tmp_path: Path):
    vain = {"worker_timeout": 9.0}
    said, _ = noted(tmp_path / "a", steps=40, **vain)
    assert said == ["worker_timeout has no effect, because vectorization is sync. Change that, or leave it out."]
    assert noted(tmp_path / "b", steps=40, **vain | {"vectorization": "subprocess"})[0] == []


def test_two_reasons_that_hold_together_are_one_sentence():
    assert notes_of_idle(TD3(decoupled_weight_decay=True)) == [
        "decoupled_weight_decay has no effect, because actor_weight_decay is 0 and critic_weight_decay is 0. Change "
        "that, or leave it out."
    ]
    assert notes_of_idle(TD3(decoupled_weight_decay=True, actor_weight_decay=0.1)) == []
    assert notes_of_idle(PPO(normalization_prior=1e-4, normalize_rewards=True)) == []


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        (PPO(epochs=1, target_kl=0.01, recompute_advantages=True), "target_kl and recompute_advantages have"),
        (DQN(prioritized=True, importance_exponent=1.0, importance_anneal_samples=5), "importance_anneal_samples has"),
        (DQN(prioritized=True, priority_exponent=0.0, priority_epsilon=0.5), "priority_epsilon has"),
    ],
)
def test_what_has_no_effect_beside_a_number(algorithm: Algorithm, said: str):
    [note] = notes_of_idle(algorithm)
    assert note.startswith(f"{said} no effect, because ")


PICTURE, SEEN = Box((1, 8, 8), "uint8", (0.0,), (255.0,)), Box((2,), "float32", (-1.0,), (1.0,))
SET_FOR_OTHERS = PPO(image_features=64, initial_log_std=-1.0)


@pytest.mark.parametrize(
    ("algorithm", "observation", "action", "said"),
    [
        (SET_FOR_OTHERS, SEEN, CHOICE, ["image_features", "initial_log_std"]),
        (SET_FOR_OTHERS, Dict((("a", SEEN), ("b", PICTURE))), Dict((("a", CHOICE), ("b", BOX))), []),
        (SET_FOR_OTHERS, PICTURE, CHOICE, ["initial_log_std"]),
        (DQN(compress_images=True), SEEN, CHOICE, ["compress_images"]),
        (DQN(compress_images=True), PICTURE, CHOICE, []),
    ],
)
def test_what_has_no_effect_with_such_spaces(algorithm: Algorithm, observation: Any, action: Any, said: list[str]):
    notes = notes_of_spaces(algorithm, observation, action)
    assert [note.partition(" has no effect")[0] for note in notes] == said


def test_nothing_is_said_of_an_algorithm_of_ones_own_which_may_read_more():
    @dataclass(frozen=True)
    class Own(TD3):
        other_weight_decay: float = 0.1

    assert notes_of_idle(Own(decoupled_weight_decay=True)) == []


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_preset_sets_anything_in_vain(name: str):
    for preset in presets(name).values():
        assert notes_of_idle(ALGORITHMS[name]().with_options(**preset.algorithm)) == []
        assert notes_of_idle_run(RunOptions(**preset.run)) == []


@pytest.mark.parametrize(
    ("algorithm", "action", "said"),
    [
        (TD3(actor_network=MINE, hidden=(7,)), NUMBERS, []),  # which the critics have
        (
            TD3(actor_network=MINE, hidden=(7,), critic_hidden=(8,)),
            NUMBERS,
            ["hidden has no effect, because actor_net"],
        ),
        (
            TD3(actor_network=MINE, critic_network=MINE, hidden=(7,), policy_delay=3),
            NUMBERS,
            ["hidden has no effect, because actor_network and critic_network are your own. Change that, or leave it"],
        ),
        (
            DQN(q_network=MINE, activation="tanh", dueling=False, n_step=3),
            Discrete(3),
            ["activation and dueling have no effect, because q_network is your own. Change that, or leave them out."],
        ),
        (
            PPO(agent_network=MINE, policy_gain=1.0, epochs=3),
            NUMBERS,
            ["policy_gain has no effect, because agent_netw"],
        ),
        (PPO(agent_network=MINE), NUMBERS, []),
        (SAC(actor_network=MINE), NUMBERS, []),
        (TD3(hidden=(7,)), NUMBERS, []),
    ],
)
def test_options_of_networks_that_are_not_there_are_said(algorithm: Any, action: Any, said: list[str]):
    found = notes_of_replaced(algorithm, Box((5,), "float32", (-1.0,), (1.0,)), action)
    assert [note[: len(part)] for note, part in zip(found, said, strict=True)] == said


@pytest.mark.parametrize(("backend", "said"), [("torch", "ten times"), ("jax", "makes nothing faster here")])
def test_a_processor_that_gains_nothing_from_bfloat16(backend: Any, said: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetto.training.outlook.multiplies_bfloat16", lambda: False)
    options = RunOptions(backend=backend, device="cpu", precision="bf16")
    (sentence,) = notes_of_precision(options)
    assert sentence.startswith("This processor has no instructions for bfloat16: ")
    assert said in sentence
    assert (
        notes_of_precision(replace(options, device="cuda"))
        == notes_of_precision(replace(options, precision="float32"))
        == []
    )
    monkeypatch.setattr("duetto.training.outlook.multiplies_bfloat16", lambda: True)
    assert notes_of_precision(options) == []


def test_pretraining_is_not_called_nothing():
    """An agent that learns from demonstrations before the first step, and from too few steps after."""
    algorithm, options = small("dqfd", learning_starts=30, train_every=1, random_steps=0), RunOptions(steps=10)
    (sentence,) = notes_ahead(algorithm, options, 1, 0, 0, begun=False, pretraining=True)
    assert "there will be no update after pre-training, because learning_starts is 30" in sentence
    assert notes_ahead(BC(), RunOptions(steps=4), 1, 0, 0, begun=False, pretraining=True) == []
