"""`probes.Recall` needs one bit of memory: recurrent policies solve it, feedforward policies cannot."""

import pytest
from probes import Recall, RecallChoice, run

from duetto import environments
from duetto.algorithms import DDPG, DQN, PPO, R2D2, SAC, TD3
from duetto.training.evaluation import evaluate

SEQUENCES = {"recurrent_size": 16, "unroll": 3, "overlap": 0, "burn_in": 0, "batch_size": 32}
CONTINUOUS = {
    "discount": 0.9,
    "hidden": (32,),
    "random_steps": 300,
    "learning_starts": 100,
    "exploration_noise": 0.2,
    "actor_learning_rate": 3e-3,
    "critic_learning_rate": 1e-2,
    "learning_rate_decay": "linear",
    "tau": 0.05,
} | SEQUENCES
ENTROPY = {"learn_temperature": False, "temperature": 1e-4, "actor_learning_rate": 1e-2}
WITHOUT_NOISE = {name: value for name, value in CONTINUOUS.items() if name != "exploration_noise"}
DISCRETE = {
    "discount": 0.9,
    "hidden": (32,),
    "head_hidden": (),
    "learning_starts": 100,
    "train_every": 1,
    "learning_rate": 5e-3,
    "adam_epsilon": 1e-5,
    "learning_rate_decay": "linear",
    "target_period": 50,
    "exploration": "linear",
    "exploration_steps": 1_000,
} | SEQUENCES
PPO_OPTIONS = {
    "hidden": (32,),
    "recurrent_size": 16,
    "rollout_steps": 24,
    "epochs": 8,
    "minibatches": 2,
    "learning_rate": 1e-2,
    "entropy_coefficient": 0.01,
}
CASES = {
    "td3": (TD3, CONTINUOUS, Recall, 1_500, {}),
    "sac": (SAC, WITHOUT_NOISE | ENTROPY, Recall, 1_500, {}),
    "ddpg": (DDPG, CONTINUOUS, Recall, 1_500, {}),
    "dqn": (DQN, DISCRETE, RecallChoice, 1_500, {}),
    "r2d2": (R2D2, DISCRETE, RecallChoice, 1_500, {}),
    "ppo": (PPO, PPO_OPTIONS, RecallChoice, 8 * 24 * 25, {"num_envs": 8}),
}
BEST_FEEDFORWARD = {Recall: 0.75, RecallChoice: 0.5}


def mean_return_after_training(name, recurrent, backend, folder):
    """Train, then return the mean return of 60 episodes."""
    kind, options, probe, steps, others = CASES[name]
    trainer = run(kind(**options, recurrent=recurrent), probe, backend, folder, steps, **others)
    stepper = environments.make(probe, num_envs=10)
    try:
        return evaluate(trainer.policy, stepper, 60, seed=0).mean_return
    finally:
        stepper.close()


def memory_case(name, recurrent="none"):
    fast = {("td3", "lstm"), ("dqn", "lstm"), ("ppo", "gru"), ("dqn", "none")}
    return pytest.param(name, recurrent, marks=() if (name, recurrent) in fast else pytest.mark.slow)


@pytest.mark.parametrize(("name", "recurrent"), [memory_case(name, kind) for name in CASES for kind in ("lstm", "gru")])
def test_recurrent_policy_solves_recall(backend, tmp_path, name, recurrent):
    assert mean_return_after_training(name, recurrent, backend, tmp_path) > 0.95


@pytest.mark.parametrize(("name", "recurrent"), [memory_case(name) for name in ("td3", "sac", "ddpg", "dqn", "ppo")])
def test_feedforward_policy_cannot_solve_recall(backend, tmp_path, name, recurrent):
    """The return is that of guessing: of 60 fair coins, a share below 0.72 is right in 99.9 % of cases."""
    mean_return = mean_return_after_training(name, recurrent, backend, tmp_path)
    best = BEST_FEEDFORWARD[CASES[name][2]]
    assert best - 0.25 < mean_return < best + 0.22
