"""Presets: every key is an option, and the numbers are those of the sources that they are named after."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from duetto.algorithms import ALGORITHMS
from duetto.environments import FAMILIES, AtariOptions
from duetto.errors import UsageError
from duetto.presets import Preset, choose, presets
from duetto.storage.config import RunOptions

ALL = [(name, preset) for name in ALGORITHMS for preset in presets(name)]
ENVIRONMENTS = {example for family in FAMILIES for example in family.examples}


def algorithm(name: str, preset: str) -> Any:
    values = presets(name)[preset].algorithm
    return ALGORITHMS[name]().with_options(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


@pytest.mark.parametrize(("name", "preset"), ALL)
def test_every_key_is_an_option_and_every_value_within_its_range(name: str, preset: str):
    entry = presets(name)[preset]
    assert algorithm(name, preset) != ALGORITHMS[name]()
    assert RunOptions(**entry.run) is not None
    assert entry.about.endswith(".")


@pytest.mark.parametrize(("name", "preset"), ALL)
def test_values_have_the_types_of_their_fields(name: str, preset: str):
    """YAML reads 1e-3 as text and yes as a truth value."""
    for defaults, values in (
        (ALGORITHMS[name](), presets(name)[preset].algorithm),
        (RunOptions(), presets(name)[preset].run),
    ):
        for key, value in values.items():
            default = getattr(defaults, key)
            assert type(value) is (list if isinstance(default, tuple) else type(default)), (key, value)


@pytest.mark.parametrize(("name", "preset"), ALL)
def test_names_that_look_like_environments_are_environments(name: str, preset: str):
    assert ("-v" in preset) == (preset in ENVIRONMENTS)


PUBLISHED = {
    # sfujim/TD3, main.py and TD3.py
    ("td3", "author"): {
        "hidden": (256, 256), "batch_size": 256, "discount": 0.99, "tau": 0.005, "actor_learning_rate": 3e-4,
        "critic_learning_rate": 3e-4, "random_steps": 25_000, "learning_starts": 25_000, "exploration_noise": 0.1,
        "policy_delay": 2, "target_noise": 0.2, "target_noise_clip": (-0.5, 0.5), "replay_capacity": 1_000_000,
        "twin_critic": True, "target_update": "with_actor", "train_every": 1, "gradient_steps": 1,
    },
    # Fujimoto et al. (2018), section 6.1 and appendix C
    ("td3", "paper"): {
        "hidden": (400, 300), "batch_size": 100, "discount": 0.99, "tau": 0.005, "actor_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3, "exploration_noise": 0.1, "policy_delay": 2, "target_noise": 0.2,
        "target_noise_clip": (-0.5, 0.5), "random_steps": 10_000,
    },
    # SPEC 2.4
    ("td3", "walkthrough"): {
        "hidden": (400, 300), "batch_size": 100, "discount": 0.99, "tau": 0.005, "actor_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3, "random_steps": 10_000, "train_at_episode_end": True, "policy_delay": 2,
        "target_noise": 0.2, "target_noise_clip": (-0.5, 0.5), "exploration_noise": 0.1, "learning_starts": 0,
    },
    ("td3", "di-engine"): {
        "hidden": (256, 256), "batch_size": 256, "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3,
        "random_steps": 25_000, "exploration_noise": 0.1, "target_update": "every_step",
    },
    # Lillicrap et al. (2016), section 7
    ("ddpg", "paper"): {
        "hidden": (400, 300), "batch_size": 64, "discount": 0.99, "tau": 0.001, "actor_learning_rate": 1e-4,
        "critic_learning_rate": 1e-3, "critic_weight_decay": 1e-2, "critic_action_layer": 1,
        "initializer_final_bound": 3e-3, "exploration": "ou", "ou_theta": 0.15, "exploration_noise": 0.2,
        "replay_capacity": 1_000_000, "initializer": "fan_in", "random_steps": 0, "learning_starts": 0,
    },
    # skrl's documentation, DDPG_DEFAULT_CONFIG
    ("ddpg", "skrl"): {
        "batch_size": 64, "discount": 0.99, "tau": 0.005, "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3,
        "random_steps": 0, "learning_starts": 0, "gradient_steps": 1, "exploration": "ou", "ou_theta": 0.15,
        "exploration_noise": 0.1, "exploration_final_scale": 1e-3, "max_grad_norm": 0,
        "normalize_observations": "sampled",
    },
    # skrl's torch_gymnasium_pendulumnovel_ddpg_lstm.py; noise in units of the action's range, [-2, 2] there
    ("ddpg", "skrl-lstm"): {
        "recurrent": "lstm", "recurrent_size": 400, "hidden": (400, 300), "batch_size": 100, "unroll": 20, "tau": 0.005,
        "discount": 0.98, "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "replay_capacity": 20_000,
        "random_steps": 0, "learning_starts": 1_000, "initializer": "normal", "initializer_gain": 0.1,
        "exploration": "ou", "exploration_noise": 0.1 / 2, "ou_theta": 0.15, "ou_reset": False,
        "exploration_final_scale": 1e-3,
    },
    # SPEC 4.1 to 4.4
    ("ppo", "walkthrough"): {
        "discount": 0.99, "gae_lambda": 0.95, "rollout_steps": 128, "epochs": 4, "minibatches": 4,
        "learning_rate": 3e-4, "learning_rate_decay": "linear", "learning_rate_final": 0.0, "adam_epsilon": 1e-8,
        "max_grad_norm": 0.5, "clip_range": 0.1, "clip_range_decay": "linear", "clip_value": True,
        "normalize_advantages": True, "value_coefficient": 0.5, "entropy_coefficient": 0.01, "shared_torso": True,
        "image_features": 512, "hidden": (), "policy_gain": 0.1, "zero_biases": False, "recompute_advantages": False,
        "target_kl": 0.0,
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
    # Tianshou's mujoco_ppo.py at 6426a39, with our own scaling: the committed results are of it
    ("ppo", "mujoco"): {
        "discount": 0.99, "gae_lambda": 0.95, "rollout_steps": 32, "epochs": 10, "minibatches": 32,
        "learning_rate": 3e-4, "learning_rate_decay": "linear", "max_grad_norm": 0.5, "clip_range": 0.2,
        "clip_value": False, "normalize_advantages": False, "recompute_advantages": True, "entropy_coefficient": 0.0,
        "hidden": (64, 64), "activation": "tanh", "initial_log_std": -0.5,
        "observation_statistics": "rollouts", "observation_clip": 5.0, "normalization_prior": 1.0,
    },
    # Kapturowski et al. (2019), sections 2.3 and 3 and table 2; the last two lines from SEED's code
    ("r2d2", "paper"): {
        "burn_in": 40, "unroll": 80, "overlap": 80, "learn_from_start": False, "stored_carry": True, "batch_size": 64,
        "n_step": 5, "discount": 0.997, "previous_reward": "raw", "priority_exponent": 0.9, "priority_mix": 0.9,
        "importance_exponent": 0.6, "importance_anneal_samples": 0, "target_period": 2500, "tau": 1.0,
        "adam_epsilon": 1e-3, "learning_rate": 1e-4, "rescale_values": True, "rescale_epsilon": 1e-3,
        "recurrent_size": 512, "hidden": (), "head_hidden": (512,), "dueling": True, "double": True, "huber_delta": 0.0,
        "exploration": "ladder", "exploration_start": 0.4, "ladder_exponent": 7.0, "evaluation_epsilon": 1e-3,
        "max_grad_norm": 40.0, "image_features": 512,
    },
    # DI-engine's pong configurations; SPEC R6, R29
    ("r2d2", "di-engine"): {"rescale_epsilon": 1e-2, "burn_in": 2, "unroll": 40, "tau": 0.001, "n_step": 5},
    ("r2d3", "di-engine"): {"rescale_epsilon": 1e-2, "burn_in": 2, "unroll": 40, "tau": 0.001, "n_step": 5},
    # Paine et al. (2019): the authors' notes on DeepMind's site, and others' accounts; SPEC R13, E8
    ("r2d3", "paper"): {
        "burn_in": 40, "unroll": 40, "overlap": 40, "learn_from_start": False, "stored_carry": False,
        "previous_reward": "raw", "margin_weight": 0.0, "one_step_weight": 0.0, "weight_decay": 0.0, "batch_size": 64,
        "n_step": 5, "double": True, "dueling": True, "demonstration_share": 1 / 256, "share_by_priority": False,
        "pretraining_updates": 0, "evaluation_epsilon": 0.001,  # the last one R2D2's
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
    # rl-baselines3-zoo, sac.yml: LunarLanderContinuous-v3, Pendulum-v1 (but for its layers), HalfCheetahBulletEnv-v0
    ("sac", "LunarLanderContinuous-v3"): {
        "hidden": (400, 300), "batch_size": 256, "actor_learning_rate": 7.3e-4, "critic_learning_rate": 7.3e-4,
        "temperature_learning_rate": 7.3e-4, "learning_rate_decay": "linear", "learning_rate_final": 0.0,
        "replay_capacity": 1_000_000, "discount": 0.99, "tau": 0.01, "train_every": 1, "gradient_steps": 1,
        "learning_starts": 10_000,
    },
    ("sac", "Pendulum-v1"): {
        "batch_size": 256, "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "temperature_learning_rate": 1e-3,
        "discount": 0.99, "tau": 0.005, "target_entropy_scale": 1.0,
    },
    ("sac", "pybullet"): {
        "hidden": (400, 300), "batch_size": 256, "actor_learning_rate": 7.3e-4, "critic_learning_rate": 7.3e-4,
        "temperature_learning_rate": 7.3e-4, "learning_rate_decay": "constant", "replay_capacity": 300_000,
        "discount": 0.98, "tau": 0.02, "train_every": 8, "gradient_steps": 8, "learning_starts": 10_000,
    },
    # rl-baselines3-zoo, ppo.yml: CartPole-v1
    ("ppo", "classic"): {
        "rollout_steps": 32, "gae_lambda": 0.8, "discount": 0.98, "epochs": 20, "minibatches": 1,
        "entropy_coefficient": 0.0, "learning_rate": 1e-3, "learning_rate_decay": "linear", "clip_range": 0.2,
        "clip_range_decay": "linear",
    },
}  # fmt: skip
# Environments side by side, of which minibatches and rollouts are made, and options of the environment itself.
SURROUNDINGS = {
    ("ppo", "walkthrough"): ({"steps": 15_000 * 8 * 128, "num_envs": 8}, {"clip_rewards": True, "episodic_life": True}),
    ("ppo", "atari"): ({"num_envs": 8}, {"clip_rewards": True, "fire_reset": "lives", "sticky_actions": 0}),
    ("ppo", "cleanrl"): ({}, {}),
    ("ppo", "mujoco"): ({"num_envs": 64}, {}),
    ("ddpg", "skrl-lstm"): ({"steps": 15_000}, {"mask_velocity": True}),
    # Kapturowski et al., section 2.3: "the full 18-action set"; lives and rewards as the game has them
    ("r2d2", "paper"): ({}, {"full_action_space": True, "sticky_actions": 0}),
    # Hester et al., experimental setup: 18 actions, sign(r) log(1 + |r|)
    ("dqfd", "paper"): ({"steps": 10_000_000}, {"full_action_space": True, "log_rewards": True, "sticky_actions": 0}),
    ("ppo", "classic"): ({"num_envs": 8, "steps": 100_000}, {}),
}


@pytest.mark.parametrize(("name", "preset"), PUBLISHED)
def test_numbers_are_the_published_ones(name: str, preset: str):
    used = algorithm(name, preset)
    assert {key: getattr(used, key) for key in PUBLISHED[name, preset]} == PUBLISHED[name, preset]


@pytest.mark.parametrize(("name", "preset"), SURROUNDINGS)
def test_and_so_are_the_numbers_around_them(name: str, preset: str):
    run, environment = SURROUNDINGS[name, preset]
    assert presets(name)[preset].run.items() >= run.items()
    assert presets(name)[preset].environment.items() >= environment.items()


def test_r2d2s_paper_changes_neither_rewards_nor_ends():
    assert not {"clip_rewards", "log_rewards", "episodic_life"} & presets("r2d2")["paper"].environment.keys()


NAMED = {"paper", "author", "simba", "skrl", "skrl-lstm", "cleanrl", "di-engine", "mujoco", "pybullet"}
PLACE = r"section|table|appendix|supplementary|without the (paper.s )?text|adityab/CrossQ|[\w/]+\.(py|yml|yaml)\b"


@pytest.mark.parametrize(("name", "preset"), [pair for pair in ALL if pair[1] in NAMED])
def test_what_is_named_after_a_source_says_where_in_it(name: str, preset: str):
    assert re.search(PLACE, presets(name)[preset].about)


@pytest.mark.parametrize(("name", "preset"), ALL)
def test_fire_is_pressed_after_each_life_that_ends_an_episode(name: str, preset: str):
    options = presets(name)[preset].environment
    assert options.get("episodic_life", False) == (options.get("fire_reset") == "lives")
    if "sticky_actions" in options:
        AtariOptions.of(options)


@pytest.mark.parametrize("preset", presets("ppo"))
def test_rollouts_can_be_cut_into_their_minibatches(preset: str):
    used, num_envs = algorithm("ppo", preset), presets("ppo")[preset].run.get("num_envs", 1)
    size, rest = divmod(used.rollout_steps * num_envs, used.minibatches)
    assert rest == 0
    assert size >= 64


@pytest.mark.parametrize(
    ("name", "environment", "given", "preset"),
    [
        ("ppo", "CartPole-v1", None, "classic"),
        ("ppo", "CartPole-v0", None, "classic"),
        ("ppo", "Acrobot-v1", None, "classic"),
        ("ppo", "MountainCar-v0", None, "classic"),
        ("ppo", "MountainCarContinuous-v0", None, "default"),
        ("ppo", "HalfCheetah-v5", None, "mujoco"),
        ("ppo", "Humanoid-v4", None, "mujoco"),
        ("ppo", "ALE/Breakout-v5", None, "atari"),
        ("ppo", "PongNoFrameskip-v4", None, "atari"),
        ("ppo", "ale/breakout-v5", None, "default"),
        ("ppo", "Pendulum-v1", "classic", "classic"),
        ("td3", "HalfCheetah-v5", None, "di-engine"),  # measured to be better
        ("td3", "Walker2d-v5", None, "di-engine"),
        ("td3", "Ant-v5", None, "Ant-v5"),
        ("td3", "Ant-v5", "author", "author"),
        ("td3", "Ant-v5", "default", "default"),
        ("td3", "ALE/Breakout-v5", None, "default"),  # a family's preset is the algorithm's own
        ("td3", "Reacher-v5", None, "default"),
        ("td3", "author", None, "author"),  # no environment is called so
        ("sac", "HalfCheetah-v5", None, "HalfCheetah-v5"),
        ("sac", "Hopper-v5", None, "author"),
        ("sac", "Humanoid-v5", None, "author"),
        ("sac", "HopperBulletEnv-v0", None, "pybullet"),
        ("sac", "Pendulum-v1", None, "Pendulum-v1"),
        ("nothing", "Walker2d-v5", None, "default"),
    ],
)
def test_a_preset_is_chosen_by_its_name_the_environment_or_its_family(
    name: str, environment: str, given: str | None, preset: str
):
    assert choose(name, environment, given) == (preset, presets(name).get(preset, Preset()))


def test_an_unknown_one_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r"^td3 has no preset 'authr'. Did you mean 'author'\?"):
        choose("td3", "Walker2d-v5", "authr")


# ---------------------------------------------------------------------------------------------------- in a file
ONE = "quick: {about: Mine., run: {steps: 500}, algorithm: {tau: 0.01}}\n"
TWO = ONE + "Pendulum-v1: {algorithm: {tau: 0.02}}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def test_the_only_one_in_a_file(file: Path):
    file.write_text(ONE)
    name, preset = choose("td3", "Pendulum-v1", str(file))
    assert (name, preset.algorithm, preset.run) == (str(file), {"tau": 0.01}, {"steps": 500})


def test_of_several_the_environments(file: Path):
    file.write_text(TWO)
    assert choose("td3", "Pendulum-v1", str(file))[1].algorithm == {"tau": 0.02}
    with pytest.raises(UsageError, match=r"mine\.yaml has no preset for CartPole-v1, but quick, Pendulum-v1"):
        choose("td3", "CartPole-v1", str(file))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("quick: {run: {step: 500}}", r"a run has no option 'step'\. Did you mean 'steps'"),
        ("quick: {options: {steps: 500}}", "cannot be read"),
        ("- 1", "cannot be read"),
        ("quick: {algorithm: {tau: 0.1}}\nquick: {}", r"cannot be read \(line 2 has quick once more"),
        ("{", "cannot be read"),
        ("", "has no preset for Pendulum-v1, but none"),
    ],
)
def test_what_is_no_preset_gets_a_sentence(file: Path, text: str, sentence: str):
    file.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        choose("td3", "Pendulum-v1", str(file))


def test_a_file_that_is_not_there_gets_a_sentence(file: Path):
    with pytest.raises(UsageError, match="cannot be read"):
        choose("td3", "Pendulum-v1", str(file))
