"""Hyperparameters: checks of values and names, conversions, and groups."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from duetto.algorithms import ALGORITHMS, BC, DDPG, DQN, PPO, R2D2, SAC, TD3, TQC, Algorithm, DiscreteSAC
from duetto.algorithms.options import Fraction
from duetto.algorithms.suggestions import FOREIGN_NAMES
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Discrete, MultiDiscrete
from duetto.storage.config import RunOptions


def test_whole_number_is_stored_in_the_type_of_its_option():
    """So an option that was written as 1 equals one that was written as 1.0."""
    made = TD3(tau=1, batch_size=8.0)
    assert (repr(made.tau), repr(made.batch_size)) == ("1.0", "8")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"discount": 1.01}, "discount is 1.01; it must be at least 0 and at most 1."),
        ({"tau": math.nan}, "tau is nan; it must be at least 0 and at most 1."),
        ({"batch_size": 0}, "batch_size is 0; it must be at least 1."),
        ({"actor_learning_rate": 0.0}, "actor_learning_rate is 0.0; it must be more than 0."),
        ({"exploration_noise": math.inf}, "exploration_noise is inf; it must be finite."),
        ({"hidden": (64, 0)}, "hidden is (64, 0); it must be at least 1."),
        ({"activation": "relo"}, "activation is 'relo'; it must be one of relu, tanh, elu, silu."),
        ({"tau": "fast"}, "tau is 'fast'; it must be a number."),
        (
            {"tau": print},
            "tau is <built-in function print>; it must be a number. Functions are not accepted; a schedule is an "
            "option, such as learning_rate_decay='linear'.",
        ),
        ({"prioritized": 1}, "prioritized is 1; it must be true or false."),
        ({"actor_network": 1}, "actor_network is 1; it must be a duetto.CustomNetwork(torch=..., jax=...), or None."),
        ({"replay_capacity": 1.5}, "replay_capacity is 1.5; it must be a whole number."),
        ({"hidden": 64}, "hidden is 64; it must be a tuple of whole numbers."),
        ({"hidden": [64, "64"]}, "hidden is (64, '64'); it must be a tuple of whole numbers."),
        ({"batch_size": True}, "batch_size is True; it must be a whole number."),
        (
            {"target_noise_clip": (False, True)},
            "target_noise_clip is (False, True); it must be two numbers, the lower one first, such as (-0.5, 0.5).",
        ),
        (
            {"hidden": (8,), "critic_action_layer": 2},
            "critic_action_layer is 2, but the critic's last layer is 1. Set it to at most 1.",
        ),
    ],
)
def test_invalid_option_value_is_rejected(options, sentence):
    with pytest.raises(UsageError) as refusal:
        TD3(**options)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (
            DQN,
            {"recurrent": "gru", "train_at_episode_end": True},
            "train_at_episode_end is for transitions; recurrent ",
        ),
        (R2D2, {"overlap": 80}, r"overlap is 80; .* less than burn_in \+ unroll \(80\)"),
        (
            TQC,
            {"num_quantiles": 3, "dropped_quantiles": 3},
            r"dropped_quantiles is 3; .* less than num_quantiles, 3\.$",
        ),
        (
            TD3,
            {"n_step": 3, "hindsight": "future"},
            "^n_step is 3 and recurrent is none; with hindsight they must be 1",
        ),
        (TD3, {"recurrent": "lstm", "hindsight": "future"}, "^n_step is 1 and recurrent is lstm; with hindsight they"),
    ],
)
def test_incompatible_options_are_rejected(kind: type, options: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        kind(**options)


NUMBERS = Box((3,), "float32", (-1.0,) * 3, (1.0,) * 3)


@pytest.mark.parametrize(
    ("kind", "action", "needs"),
    [
        (DDPG, Discrete(2), "a continuous action space (Box)"),
        (DDPG, MultiDiscrete((2, 3)), "a continuous action space (Box)"),
        (R2D2, NUMBERS, "a Discrete action space"),
        (DiscreteSAC, NUMBERS, "a Discrete action space"),
    ],
)
def test_actions_of_another_kind_are_rejected_c8(kind: type[Algorithm], action: Any, needs: str):
    with pytest.raises(UsageError) as refusal:
        kind().check_spaces(NUMBERS, action, "Some-v0")
    assert str(refusal.value) == f"{kind.name()} needs {needs}; Some-v0 has {action}."


@pytest.mark.parametrize("kind", ALGORITHMS.values())
@pytest.mark.parametrize("given", [(3e-4,), ("MlpPolicy", "CartPole-v1")])
def test_positional_hyperparameters_are_rejected(kind: type[Algorithm], given: tuple[Any, ...]):
    """PPO(3e-4) would otherwise set the discount to 0.0003."""
    with pytest.raises(UsageError, match=f"{kind.__name__} takes only hyperparameters, by name; no policy"):
        kind(*given)


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        (TD3, "polcy_delay", "'policy_delay'"),
        (TD3, "lr", "'actor_learning_rate' or 'critic_learning_rate'"),
        (PPO, "n_steps", "'rollout_steps'"),
        (PPO, "clip_range_vf", "'clip_value'"),  # not clip_range, although its spelling is closer
        (SAC, "ent_coef", "'temperature'"),
    ],
)
def test_foreign_option_name_suggests_duetto_option(kind: type, name: str, meant: str):
    for make in (kind, kind().with_options):
        with pytest.raises(UsageError) as refusal:
            make(**{name: 1})
        assert str(refusal.value) == f"{kind.name()} has no hyperparameter {name!r}. Did you mean {meant}?"


def test_foreign_names_map_to_existing_options():
    every = {name for kind in ALGORITHMS.values() for name in kind.options()}
    every |= {field.name for field in dataclasses.fields(RunOptions)}
    for called, here in FOREIGN_NAMES.items():
        assert set(here) <= every, called


def test_numpy_scalars_become_python_numbers():
    run = RunOptions(steps=np.int64(60), seed=np.array(3), num_envs=1e2)
    assert [(value, type(value)) for value in (run.steps, run.seed, run.num_envs)] == [(60, int), (3, int), (100, int)]
    td3 = TD3(hidden=(np.int32(8), 16), discount=np.float32(0.5), tau=np.int64(1), prioritized=np.bool_(True))
    assert td3 == TD3(hidden=(8, 16), discount=0.5, tau=1, prioritized=True)
    assert [type(value) for value in (*td3.hidden, td3.discount, td3.prioritized)] == [int, int, float, bool]


def test_lists_become_tuples():
    assert TD3(hidden=[64, 32], target_noise_clip=[-0.5, 0.5]) == TD3(hidden=(64, 32), target_noise_clip=(-0.5, 0.5))
    assert hash(TD3().with_options(hidden=[8])) == hash(TD3(hidden=(8,)))


def test_unknown_option_without_similar_name_lists_all():
    with pytest.raises(UsageError, match=r"ddpg has no hyperparameter 'xyzzy'\. It has: batch_size, .*, tau"):
        DDPG().with_options(xyzzy=3)


@pytest.mark.parametrize("make", [BC, BC().with_options])
def test_class_variable_removes_inherited_option(make: Any):
    assert "n_step" in R2D2.options()
    with pytest.raises(UsageError, match="bc has no hyperparameter 'n_step'"):
        make(n_step=1)


@dataclass(frozen=True)
class Untyped(TD3):
    tau = 0.05


class Undecorated(TD3):
    tau: Fraction = 0.5
    beta: float = 3.0


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Untyped, r"Untyped sets tau without declaring an option. Write `name: type = value`"),
        (Undecorated, r"Undecorated sets tau, beta without declaring an option. .* @dataclass\(frozen=True\)"),
    ],
)
def test_undeclared_option_in_subclass_is_rejected(kind: type[Algorithm], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        kind()


@dataclass(frozen=True)
class Extended(TD3):
    """A third-party algorithm that declares no option groups."""

    members: int = 3


@pytest.mark.parametrize("kind", [*ALGORITHMS.values(), Extended])
def test_every_option_is_in_one_group(kind: type[Algorithm]):
    groups = kind.option_groups()
    titles = [kind.__name__, "exploration", "networks", "optimizer", "replay", "recurrence", "demonstrations"]
    assert list(groups) == [title for title in titles if title in groups]
    assert all(groups.values())
    assert sorted(name for names in groups.values() for name in names) == sorted(kind.options())


@pytest.mark.parametrize("kind", ALGORITHMS.values())
def test_help_shows_at_most_40_options(kind: type[Algorithm]):
    shown = [name for name in kind.options() if not name.endswith("_network") and name not in kind.rare_options()]
    assert len(shown) <= 40
