"""Presets: every key is an option, and the numbers are those of the sources that they are named after."""

from __future__ import annotations

from typing import Any

import pytest

from duetto.algorithms import ALGORITHMS
from duetto.environments import FAMILIES
from duetto.errors import UsageError
from duetto.presets import Preset, choose, presets
from duetto.training.config import RunOptions

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


def test_what_the_issue_asks_for_is_there():
    assert {"walkthrough", "paper", "author", "di-engine"} <= presets("td3").keys()
    tuned = {"HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "AntBulletEnv-v0", "Pendulum-v1"}
    assert tuned <= presets("td3").keys()
    assert {"paper", "skrl"} <= presets("ddpg").keys()


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
        "random_steps": 25_000, "exploration_noise": 0.1, "target_update": "every_step", "ignore_termination": False,
    },
    # Lillicrap et al. (2016), section 7
    ("ddpg", "paper"): {
        "hidden": (400, 300), "batch_size": 64, "discount": 0.99, "tau": 0.001, "actor_learning_rate": 1e-4,
        "critic_learning_rate": 1e-3, "critic_weight_decay": 1e-2, "critic_action_layer": 1,
        "initializer_final_bound": 3e-3, "exploration": "ou", "ou_theta": 0.15, "exploration_noise": 0.2,
        "replay_capacity": 1_000_000,
    },
    # skrl's documentation, DDPG_DEFAULT_CONFIG
    ("ddpg", "skrl"): {
        "batch_size": 64, "discount": 0.99, "tau": 0.005, "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3,
        "random_steps": 0, "learning_starts": 0, "gradient_steps": 1, "exploration": "ou", "ou_theta": 0.15,
        "exploration_noise": 0.1, "exploration_scale": 1.0, "exploration_final_scale": 1e-3, "max_grad_norm": 0,
        "normalize_observations": "sampled",
    },
}  # fmt: skip


@pytest.mark.parametrize(("name", "preset"), PUBLISHED)
def test_numbers_are_the_published_ones(name: str, preset: str):
    used = algorithm(name, preset)
    assert {key: getattr(used, key) for key in PUBLISHED[name, preset]} == PUBLISHED[name, preset]


def test_the_environments_own_is_taken_where_none_is_named():
    assert choose("td3", "Hopper-v5", None) == ("Hopper-v5", presets("td3")["Hopper-v5"])
    assert choose("td3", "Hopper-v5", "author") == ("author", presets("td3")["author"])
    assert choose("td3", "Hopper-v5", "default") == ("default", Preset())
    assert choose("td3", "Reacher-v5", None) == ("default", Preset())
    assert choose("td3", "author", None)[0] == "author"  # no environment is called so


def test_an_unknown_one_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r"^td3 has no preset 'authr'. Did you mean 'author'\? It has: default, walk"):
        choose("td3", "Hopper-v5", "authr")


def test_an_algorithm_without_presets_has_the_default_one():
    assert presets("nothing") == {}
    assert choose("nothing", "Hopper-v5", None) == ("default", Preset())
