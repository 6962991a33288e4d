"""Hyper-parameters as data: what is out of range or unknown is refused in a sentence."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import toy_networks

from duetto.algorithms import ALGORITHMS, BC, DDPG, DQN, PPO, R2D2, SAC, TD3, Algorithm, DQfD
from duetto.algorithms.options import Fraction
from duetto.algorithms.suggestions import FOREIGN_NAMES
from duetto.errors import UsageError
from duetto.storage.config import RunOptions


def test_every_class_is_found_by_its_name():
    assert {name: kind.__name__.lower() for name, kind in ALGORITHMS.items()} == {name: name for name in ALGORITHMS}
    assert {DQN, PPO, TD3, DQfD} <= set(ALGORITHMS.values())


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
            "tau is <built-in function print>; it must be a number. Schedules are options: "
            "learning_rate_decay='linear'.",
        ),
        ({"prioritized": 1}, "prioritized is 1; it must be true or false."),
        ({"actor_network": 1}, "actor_network is 1; it must be a duetto.CustomNetwork(torch=..., jax=...), or None."),
        ({"replay_capacity": 1.5}, "replay_capacity is 1.5; it must be a whole number."),
        ({"hidden": 64}, "hidden is 64; it must be a tuple of whole numbers."),
        ({"hidden": [64, "64"]}, "hidden is (64, '64'); it must be a tuple of whole numbers."),
        ({"batch_size": True}, "batch_size is True; it must be a whole number."),
        (
            {"target_noise_clip": (False, True)},
            "target_noise_clip is (False, True); it must be two numbers, the first one lower, as (-0.5, 0.5).",
        ),
        ({"hidden": (8,), "critic_action_layer": 2}, "critic_action_layer is 2; the critic's last layer is 1."),
    ],
)
def test_out_of_range(options, sentence):
    with pytest.raises(UsageError) as refusal:
        TD3(**options)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("options", [{"discount": 0.0}, {"discount": 1.0}, {"tau": 1}, {"hidden": ()}])
def test_the_ends_of_a_range_belong_to_it(options):
    TD3(**options)


@pytest.mark.parametrize("kind", ALGORITHMS.values())
@pytest.mark.parametrize("given", [(3e-4,), ("MlpPolicy", "CartPole-v1")])
def test_values_without_names_are_refused(kind: type[Algorithm], given: tuple[Any, ...]):
    """PPO(3e-4) was one with a discount of 0.0003."""
    with pytest.raises(UsageError, match=f"{kind.__name__} takes hyper-parameters by name, neither policy"):
        kind(*given)


def test_algorithms_are_copied_and_pickled():
    algorithm = ALGORITHMS["ppo"]()
    assert copy.deepcopy(algorithm) == pickle.loads(pickle.dumps(algorithm)) == algorithm


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        (TD3, "polcy_delay", "'policy_delay'"),
        (TD3, "lr", "'actor_learning_rate' or 'critic_learning_rate'"),
        (PPO, "lr", "'learning_rate'"),
        (DQN, "buffer_size", "'replay_capacity'"),
        (PPO, "n_steps", "'rollout_steps'"),
        (DDPG, "gamma", "'discount'"),
    ],
)
def test_what_other_libraries_call_it_is_known(kind: type, name: str, meant: str):
    for make in (kind, kind().with_options):
        with pytest.raises(UsageError) as refusal:
            make(**{name: 1})
        assert str(refusal.value) == f"{kind.name()} has no hyper-parameter {name!r}. Did you mean {meant}?"


OTHERS = {
    ("sb3", DQN): {"exploration_initial_eps": "exploration_start", "exploration_fraction": "exploration_steps"},
    ("sb3", PPO): {"clip_range_vf": "clip_value", "learning_starts": None, "batch_size": "minibatches"},
    ("sb3", SAC): {"target_update_interval": None, "ent_coef": "temperature"},
    ("skrl", PPO): {"ratio_clip": "clip_range", "value_clip": "clip_value", "kl_threshold": "target_kl"},
    ("skrl", TD3): {"smooth_regularization_noise": "target_noise", "random_timesteps": "random_steps"},
    ("skrl", SAC): {"entropy_learning_rate": "temperature_learning_rate", "initial_entropy_value": "temperature"},
    ("tianshou", DQN): {"estimation_step": "n_step"},
    ("tianshou", PPO): {"eps_clip": "clip_range", "repeat_per_collect": "epochs"},
    ("cleanrl", PPO): {"update_epochs": "epochs", "clip_coef": "clip_range", "clip_vloss": "clip_value"},
    ("cleanrl", DQN): {"target_network_frequency": "target_period", "start_e": "exploration_start"},
}


@pytest.mark.parametrize("whose", OTHERS, ids=str)
def test_no_name_of_another_library_leads_to_a_wrong_option(whose: tuple[str, type]):
    """Spelling alone led from `clip_range_vf` to `clip_range`, which is something else."""
    _, kind = whose
    for name, meant in OTHERS[whose].items():
        with pytest.raises(UsageError) as refusal:
            kind(**{name: 1})
        said = str(refusal.value)
        assert f"Did you mean {meant!r}" in said if meant else "Did you mean" not in said, said


def test_what_others_call_an_option_leads_to_one_that_there_is():
    every = {name for kind in ALGORITHMS.values() for name in kind.options()}
    every |= {field.name for field in dataclasses.fields(RunOptions)}
    for called, here in FOREIGN_NAMES.items():
        assert set(here) <= every, called


def test_numpys_numbers_are_taken_and_kept_as_pythons_own():
    run = RunOptions(steps=np.int64(60), seed=np.array(3), num_envs=1e2)
    assert [(value, type(value)) for value in (run.steps, run.seed, run.num_envs)] == [(60, int), (3, int), (100, int)]
    td3 = TD3(hidden=(np.int32(8), 16), discount=np.float32(0.5), tau=np.int64(1), prioritized=np.bool_(True))
    assert td3 == TD3(hidden=(8, 16), discount=0.5, tau=1, prioritized=True)
    assert [type(value) for value in (*td3.hidden, td3.discount, td3.prioritized)] == [int, int, float, bool]


def test_lists_are_taken_for_tuples():
    assert TD3(hidden=[64, 32], target_noise_clip=[-0.5, 0.5]) == TD3(hidden=(64, 32), target_noise_clip=(-0.5, 0.5))
    assert hash(TD3().with_options(hidden=[8])) == hash(TD3(hidden=(8,)))


def test_where_none_is_near_all_are_listed():
    with pytest.raises(UsageError, match=r"ddpg has no hyper-parameter 'xyzzy'\. It has: batch_size, .*, tau"):
        DDPG().with_options(xyzzy=3)


@pytest.mark.parametrize("name", ["discount", "n_step", "tau", "target_period", "double", "rescale_values"])
def test_cloning_has_no_options_that_it_would_not_read(name: str):
    assert name in R2D2.options()
    assert name not in BC.options()
    with pytest.raises(UsageError, match=f"bc has no hyper-parameter '{name}'"):
        BC(**{name: 1})
    with pytest.raises(UsageError, match=f"bc has no hyper-parameter '{name}'"):
        BC().with_options(**{name: 1})


def test_own_networks_are_found_by_field():
    actor = toy_networks.actor()
    assert TD3(actor_network=actor).custom_networks() == {"actor_network": actor}
    assert TD3().custom_networks() == {}


@dataclass(frozen=True)
class Untyped(TD3):
    tau = 0.05


class Undecorated(TD3):
    tau: Fraction = 0.5
    beta: float = 3.0


class Below(Untyped):
    pass


class FromNothing(Algorithm):
    tau: Fraction = 0.5


@dataclass(frozen=True)
class Right(TD3):
    tau: Fraction = 0.5
    note: ClassVar[str] = "no option"

    def networks(self, observation: Any, action: Any) -> Any:
        return super().networks(observation, action)


class Plain(TD3):
    """Only methods, and what is none of the options."""

    note: ClassVar[str] = "no option"
    other = 3


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Untyped, r"Untyped sets tau, which is no option yet: write `name: type = value`"),
        (Undecorated, r"Undecorated sets tau, beta, which is no option yet: .* @dataclass\(frozen=True\)"),
        (Below, r"Untyped sets tau, which is no option"),
        (FromNothing, r"FromNothing sets tau, which is no option yet"),
    ],
)
def test_it_is_refused(kind: type[Algorithm], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        kind()


@dataclass(frozen=True)
class Fixed(TD3):
    """A class variable takes an inherited option away."""

    policy_delay: ClassVar[int] = 3  # pyright: ignore[reportIncompatibleVariableOverride]


def test_a_class_variable_is_no_option():
    assert "policy_delay" not in Fixed.options()
    assert Fixed().phase(2) == 1
    assert Fixed().phase(3) == 0
    with pytest.raises(UsageError, match="fixed has no hyper-parameter 'policy_delay'"):
        Fixed(policy_delay=2)  # pyright: ignore[reportCallIssue]


def test_what_declares_its_options():
    assert Right().tau == 0.5
    assert Plain().tau == TD3().tau
    for kind in ALGORITHMS.values():
        kind()


@dataclass(frozen=True)
class Extended(TD3):
    """A third party's algorithm that declares no groups."""

    members: int = 3


@pytest.mark.parametrize("kind", [*ALGORITHMS.values(), Extended])
def test_every_option_is_in_one_group(kind: type[Algorithm]):
    groups = kind.option_groups()
    titles = [kind.__name__, "exploration", "networks", "optimizer", "replay", "recurrence", "demonstrations"]
    assert list(groups) == [title for title in titles if title in groups]
    assert all(groups.values())
    assert sorted(name for names in groups.values() for name in names) == sorted(kind.options())


def test_undeclared_options_are_in_the_algorithms_own_group():
    assert "members" in Extended.option_groups()["Extended"]
    assert "policy_delay" in Extended.option_groups()["Extended"]


def test_options_without_effect_by_default_are_rare():
    assert {"priority_exponent", "burn_in", "ou_theta", "twin_critic"} <= TD3.rare_options()
    assert not {"prioritized", "recurrent", "exploration", "tau", "members"} & Extended.rare_options()
    assert not {"priority_exponent", "burn_in"} & ALGORITHMS["r2d2"].rare_options()
    assert "exploration_steps" in ALGORITHMS["r2d2"].rare_options()


@pytest.mark.parametrize("kind", ALGORITHMS.values())
def test_what_an_option_needs_is_an_option(kind: type[Algorithm]):
    needed = {entry.needs.partition("=")[0] for entry in kind.declared_options().values() if entry.needs}
    assert needed <= set(kind.options())


@pytest.mark.parametrize("kind", ALGORITHMS.values())
def test_help_shows_at_most_40_options(kind: type[Algorithm]):
    shown = [name for name in kind.options() if not name.endswith("_network") and name not in kind.rare_options()]
    assert len(shown) <= 40
