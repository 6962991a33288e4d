"""Presets: valid options, published hyperparameters, selection, and files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from duetto.algorithms import ALGORITHMS
from duetto.environments import FAMILIES
from duetto.errors import UsageError
from duetto.presets import Preset, choose, presets
from duetto.storage.config import RunOptions

ALL_PRESETS = [(name, preset) for name in ALGORITHMS for preset in presets(name)]
SOURCE_NAMES = {"paper", "author", "simba", "skrl", "skrl-lstm", "cleanrl", "di-engine", "mujoco", "pybullet"}
CITATION = r"section|table|appendix|supplementary|not have the (paper.s )?text|adityab/CrossQ|[\w/]+\.(py|yml|yaml)\b"
ENVIRONMENTS = {example for family in FAMILIES for example in family.examples}


def algorithm(name: str, preset: str) -> Any:
    values = presets(name)[preset].algorithm
    return ALGORITHMS[name]().with_options(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


@pytest.mark.parametrize(("name", "preset"), ALL_PRESETS)
def test_preset_options_are_valid(name: str, preset: str):
    entry = presets(name)[preset]
    assert algorithm(name, preset) != ALGORITHMS[name]()
    assert RunOptions(**entry.run) is not None
    assert entry.about.endswith(".")
    assert ("-v" in preset) == (preset in ENVIRONMENTS)
    assert preset not in SOURCE_NAMES or re.search(CITATION, entry.about)  # cites the place in its source
    options = entry.environment  # if each life is an episode, fire after each life
    assert options.get("episodic_life", False) == (options.get("fire_reset") == "lives")

    for defaults, values in ((ALGORITHMS[name](), entry.algorithm), (RunOptions(), entry.run)):
        for key, value in values.items():
            default = getattr(defaults, key)  # YAML reads 1e-3 as a string and yes as a boolean
            assert type(value) is (list if isinstance(default, tuple) else type(default)), (key, value)


PUBLISHED = {
    # sfujim/TD3, main.py and TD3.py
    ("td3", "author"): {
        "hidden": (256, 256), "batch_size": 256, "discount": 0.99, "tau": 0.005, "actor_learning_rate": 3e-4,
        "critic_learning_rate": 3e-4, "random_steps": 25_000, "learning_starts": 25_000, "exploration_noise": 0.1,
        "policy_delay": 2, "target_noise": 0.2, "target_noise_clip": (-0.5, 0.5), "replay_capacity": 1_000_000,
        "twin_critic": True, "target_update": "with_actor", "train_every": 1, "gradient_steps": 1,
    },
    # Lillicrap et al. (2016), section 7
    ("ddpg", "paper"): {
        "hidden": (400, 300), "batch_size": 64, "discount": 0.99, "tau": 0.001, "actor_learning_rate": 1e-4,
        "critic_learning_rate": 1e-3, "critic_weight_decay": 1e-2, "critic_action_layer": 1,
        "initializer_final_bound": 3e-3, "exploration": "ou", "ou_theta": 0.15, "exploration_noise": 0.2,
        "replay_capacity": 1_000_000, "initializer": "fan_in", "random_steps": 0, "learning_starts": 0,
    },
    # OpenAI Baselines' ppo2 for Atari and CleanRL's ppo_atari.py; SPEC 4.7
    ("ppo", "atari"): {
        "discount": 0.99, "gae_lambda": 0.95, "rollout_steps": 128, "epochs": 4, "minibatches": 4,
        "learning_rate": 2.5e-4, "learning_rate_decay": "linear", "learning_rate_final": 0.0, "adam_epsilon": 1e-5,
        "max_grad_norm": 0.5, "clip_range": 0.1, "clip_range_decay": "constant", "clip_value": True,
        "normalize_advantages": True, "value_coefficient": 0.5, "entropy_coefficient": 0.01, "shared_torso": True,
        "image_features": 512, "hidden": (), "policy_gain": 0.01, "zero_biases": True,
    },
    # CleanRL's ppo_continuous_action.py
    ("ppo", "cleanrl"): {
        "discount": 0.99, "gae_lambda": 0.95, "rollout_steps": 2048, "epochs": 10, "minibatches": 32,
        "learning_rate": 3e-4, "learning_rate_decay": "linear", "adam_epsilon": 1e-5, "max_grad_norm": 0.5,
        "clip_range": 0.2, "clip_value": True, "normalize_advantages": True, "value_coefficient": 0.5,
        "entropy_coefficient": 0.0, "hidden": (64, 64), "activation": "tanh", "shared_torso": False,
        "policy_gain": 0.01, "initial_log_std": 0.0, "normalize_observations": True, "normalize_rewards": True,
        "observation_statistics": "steps", "observation_clip": 10.0, "normalization_prior": 1e-4,
    },
    # Kapturowski et al. (2019), sections 2.3 and 3 and table 2; the last two lines are from SEED's code
    ("r2d2", "paper"): {
        "burn_in": 40, "unroll": 80, "overlap": 80, "learn_from_start": False, "stored_carry": True, "batch_size": 64,
        "n_step": 5, "discount": 0.997, "previous_reward": "raw", "priority_exponent": 0.9, "priority_mix": 0.9,
        "importance_exponent": 0.6, "importance_anneal_samples": 0, "target_period": 2500, "tau": 1.0,
        "adam_epsilon": 1e-3, "learning_rate": 1e-4, "rescale_values": True, "rescale_epsilon": 1e-3,
        "recurrent_size": 512, "hidden": (), "head_hidden": (512,), "dueling": True, "double": True, "huber_delta": 0.0,
        "exploration": "ladder", "exploration_start": 0.4, "ladder_exponent": 7.0, "evaluation_epsilon": 1e-3,
        "max_grad_norm": 40.0, "image_features": 512,
    },
    # Paine et al. (2019): the authors' notes on DeepMind's site, and others' accounts; SPEC R13, E8
    ("r2d3", "paper"): {
        "burn_in": 40, "unroll": 40, "overlap": 40, "learn_from_start": False, "stored_carry": False,
        "previous_reward": "raw", "margin_weight": 0.0, "one_step_weight": 0.0, "weight_decay": 0.0, "batch_size": 64,
        "n_step": 5, "double": True, "dueling": True, "demonstration_share": 1 / 256, "share_by_priority": False,
        "pretraining_updates": 0, "evaluation_epsilon": 0.001,  # evaluation_epsilon is R2D2's
    },
    # Hester et al. (2018), background, experimental setup and supplementary material: L2 is a term of the loss
    ("dqfd", "paper"): {
        "weight_decay": 1e-5, "decoupled_weight_decay": False, "n_step": 10, "margin": 0.8, "target_period": 10_000,
        "pretraining_updates": 750_000, "priority_exponent": 0.4, "importance_exponent": 0.6, "priority_epsilon": 1e-3,
        "demonstration_priority_epsilon": 1.0, "exploration_start": 0.01, "exploration_end": 0.01, "batch_size": 32,
        "importance_anneal_samples": 750_000 + 10_000_000 // 4, "huber_delta": 0.0, "discount": 0.99, "dueling": True,
        "double": True, "n_step_weight": 1.0, "one_step_weight": 1.0, "margin_weight": 1.0, "share_by_priority": True,
        "margin_in_priority": False,
    },
    # Haarnoja et al. (2018, v2), appendix D, table 1; random steps as in the authors' softlearning
    ("sac", "author"): {
        "hidden": (256, 256), "activation": "relu", "batch_size": 256, "discount": 0.99, "tau": 0.005,
        "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "temperature_learning_rate": 3e-4,
        "replay_capacity": 1_000_000, "target_entropy_scale": 1.0, "learn_temperature": True, "gradient_steps": 1,
        "train_every": 1, "random_steps": 10_000, "stochastic_evaluation": False, "network": "mlp",
    },
    # SonyResearch/simba, configs/agent/sac_simba.yaml, configs/base.yaml and configs/buffer/numpy_uniform.yaml
    ("sac", "simba"): {
        "gradient_steps": 2, "train_every": 1, "learning_starts": 5_000, "replay_capacity": 1_000_000,
        "network": "simba", "hidden": (128,), "critic_hidden": (512, 512), "batch_size": 256, "tau": 0.005,
        "actor_learning_rate": 1e-4, "critic_learning_rate": 1e-4, "temperature_learning_rate": 1e-4,
        "actor_weight_decay": 1e-2, "critic_weight_decay": 1e-2, "decoupled_weight_decay": True, "temperature": 0.01,
        "target_entropy_scale": 0.5, "normalize_observations": "collected",
    },
    # adityab/CrossQ, train.py (--algo crossq) and sbx/sac/policies.py
    ("crossq", "author"): {
        "hidden": (256, 256), "critic_hidden": (2048, 2048), "activation": "relu", "batch_size": 256, "discount": 0.99,
        "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "temperature_learning_rate": 1e-3,
        "adam_beta1": 0.5, "policy_delay": 3, "network": "batch_renorm", "temperature": 1.0,
        "target_entropy_scale": 1.0,
        "replay_capacity": 1_000_000, "random_steps": 5_000, "learning_starts": 5_000, "gradient_steps": 1,
    },
    # Holiday-Robot/FlashSAC, scripts/run_mujoco.sh and the agent's configuration; SPEC_FLASHSAC 1
    ("flashsac", "flashsac"): {
        "network": "flash", "hidden": (128, 128), "critic_hidden": (256, 256), "batch_size": 512, "discount": 0.99,
        "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "temperature_learning_rate": 3e-4, "tau": 0.01,
        "learning_rate_decay": "cosine", "learning_rate_final": 0.5, "policy_delay": 2, "temperature": 0.01,
        "target_entropy_scale": 0.4781815, "noise_repeats": 16, "num_atoms": 101, "value_range": (-5.0, 5.0),
        "normalize_rewards": True, "return_bound": 5.0, "n_step": 1, "random_steps": 10_000, "learning_starts": 10_000,
        "replay_capacity": 1_000_000, "train_every": 1, "gradient_steps": 1, "project_weights": True,
    },
    # The same with its configuration for a GPU
    ("flashsac", "many-envs"): {
        "network": "flash", "hidden": (128, 128), "critic_hidden": (256, 256), "batch_size": 2048, "train_every": 1024,
        "gradient_steps": 2, "replay_capacity": 10_000_000, "random_steps": 100_000, "learning_starts": 100_000,
        "policy_delay": 2, "learning_rate_decay": "cosine", "learning_rate_final": 0.5, "tau": 0.01,
    },
    # danielpalenicek/xqc; SPEC_FLASHSAC 9
    ("flashsac", "xqc"): {
        "network": "xqc", "hidden": (256,) * 4, "critic_hidden": (512,) * 4, "batch_size": 256, "discount": 0.995,
        "gradient_steps": 2, "policy_delay": 3, "learning_rate_decay": "linear", "learning_rate_final": 0.1,
        "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "temperature_learning_rate": 3e-4, "tau": 0.005,
        "temperature": 0.01, "target_entropy_scale": 0.5, "return_bound": 0.0, "noise_repeats": 1, "num_atoms": 101,
        "value_range": (-5.0, 5.0), "random_steps": 5_000, "learning_starts": 5_000, "replay_capacity": 1_000_000,
    },
}  # fmt: skip
# Run options and environment options.
PUBLISHED_RUNS = {
    ("ppo", "atari"): ({"num_envs": 8}, {"clip_rewards": True, "fire_reset": "lives", "sticky_actions": 0}),
    ("flashsac", "many-envs"): ({"num_envs": 1024, "precision": "bf16"}, {}),
    # Kapturowski et al., section 2.3: "the full 18-action set"; lives and rewards as in the game
    ("r2d2", "paper"): ({}, {"full_action_space": True, "sticky_actions": 0}),
    # Hester et al., experimental setup: 18 actions, sign(r) log(1 + |r|)
    ("dqfd", "paper"): ({"steps": 10_000_000}, {"full_action_space": True, "log_rewards": True, "sticky_actions": 0}),
}


@pytest.mark.parametrize(("name", "preset"), PUBLISHED)
def test_preset_matches_published_hyperparameters(name: str, preset: str):
    used = algorithm(name, preset)
    assert {key: getattr(used, key) for key in PUBLISHED[name, preset]} == PUBLISHED[name, preset]


@pytest.mark.parametrize(("name", "preset"), PUBLISHED_RUNS)
def test_preset_matches_published_run_and_environment_options(name: str, preset: str):
    run, environment = PUBLISHED_RUNS[name, preset]
    assert presets(name)[preset].run.items() >= run.items()
    assert presets(name)[preset].environment.items() >= environment.items()


@pytest.mark.parametrize("preset", presets("ppo"))
def test_ppo_rollouts_divide_evenly_into_minibatches(preset: str):
    used, num_envs = algorithm("ppo", preset), presets("ppo")[preset].run.get("num_envs", 1)
    size, rest = divmod(used.rollout_steps * num_envs, used.minibatches)
    assert rest == 0
    assert size >= 64


@pytest.mark.parametrize(
    ("name", "environment", "given", "preset"),
    [
        ("ppo", "CartPole-v1", None, "classic"),
        ("ppo", "MountainCarContinuous-v0", None, "default"),
        ("ppo", "HalfCheetah-v5", None, "mujoco"),
        ("ppo", "ALE/Breakout-v5", None, "atari"),
        ("ppo", "Pendulum-v1", "classic", "classic"),
        ("td3", "Ant-v5", None, "Ant-v5"),
        ("td3", "Ant-v5", "author", "author"),
        ("td3", "Ant-v5", "default", "default"),
        ("td3", "ALE/Breakout-v5", None, "default"),  # td3 has no preset for Atari
        ("td3", "author", None, "author"),  # no environment has this name
        ("sac", "Hopper-v5", None, "author"),
        ("nothing", "Walker2d-v5", None, "default"),
    ],
)
def test_preset_is_selected_by_name_environment_or_family(name: str, environment: str, given: str | None, preset: str):
    assert choose(name, environment, given) == (preset, presets(name).get(preset, Preset()))


# ---------------------------------------------------------------------------------------------------- in a file
ONE_PRESET = "quick: {about: Mine., run: {steps: 500}, algorithm: {tau: 0.01}}\n"
TWO_PRESETS = ONE_PRESET + "Pendulum-v1: {algorithm: {tau: 0.02}}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def test_only_preset_in_file_is_selected(file: Path):
    file.write_text(ONE_PRESET)
    name, preset = choose("td3", "Pendulum-v1", str(file))
    assert (name, preset.algorithm, preset.run) == (str(file), {"tau": 0.01}, {"steps": 500})


def test_empty_section_of_a_preset_is_ignored(file: Path):
    file.write_text("quick: {algorithm: , run: }")
    assert choose("td3", "Pendulum-v1", str(file))[1] == Preset()


def test_preset_file_selects_by_environment(file: Path):
    file.write_text(TWO_PRESETS)
    assert choose("td3", "Pendulum-v1", str(file))[1].algorithm == {"tau": 0.02}
    with pytest.raises(UsageError, match=r"mine\.yaml has no preset for CartPole-v1\. It has: quick, Pendulum-v1\."):
        choose("td3", "CartPole-v1", str(file))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("quick: {run: {step: 500}}", r"a run has no option 'step'\. Did you mean 'steps'"),
        ("quick: {options: {steps: 500}}", "cannot be read"),
        ("quick: {run: 5}", "cannot be read"),
        ("- 1", "cannot be read"),
        ("quick: {algorithm: {tau: 0.1}}\nquick: {}", r"cannot be read \(line 2 repeats the key quick"),
        ("{", "cannot be read"),
        ("", r"has no preset for Pendulum-v1\. It has: none\."),
    ],
)
def test_invalid_preset_file_is_rejected(file: Path, text: str, sentence: str):
    file.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        choose("td3", "Pendulum-v1", str(file))
