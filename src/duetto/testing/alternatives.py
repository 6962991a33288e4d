"""For every option another value that changes the numbers of a short run in the random environment."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from duetto.algorithms import Algorithm
from duetto.networks.specs import CustomNetwork

# Options without an effect in a short random run.
UNTRIED = ("demonstrations", "image_features", "stochastic_evaluation", "evaluation_epsilon")
PER: dict[str, Any] = {"prioritized": True}
LSTM: dict[str, Any] = {"recurrent": "lstm"}
OU: dict[str, Any] = {"exploration": "ou"}
LINEAR: dict[str, Any] = {"learning_rate_decay": "linear"}

# Other values of options whose half or next choice has no effect, and the options that they need.
ALTERNATIVES: dict[str, tuple[Any, dict[str, Any]] | None] = {
    "replay_capacity": (30, {}),
    "priority_exponent": (1.0, PER),
    "priority_epsilon": (0.5, PER),
    "importance_exponent": (1.0, PER),
    "importance_anneal_samples": (5, PER),
    "recurrent": ("lstm", {}),
    "recurrent_size": (6, LSTM),
    "recurrent_layers": (2, LSTM),
    "burn_in": (1, LSTM),
    "unroll": (5, LSTM),
    "overlap": (3, LSTM),
    "stored_carry": (False, LSTM),
    "learn_from_start": (False, LSTM),
    "priority_mix": (0.1, LSTM | PER),
    "previous_reward": ("raw", LSTM),
    "learning_rate_final": (0.5, LINEAR),
    "max_grad_norm": (0.01, {}),
    "hidden": ((16,), {}),
    "head_hidden": ((4,), {}),
    "exploration_steps": (200, {"exploration": "linear", "exploration_start": 1.0}),
    "double": (False, {"learning_rate": 0.5, "tau": 0.1, "target_period": 1, "train_every": 1, "dueling": False}),
    "ou_theta": (0.5, OU),
    "ou_reset": (False, OU),
    "ladder_exponent": (0.5, {"exploration": "ladder", "exploration_start": 0.9}),
    "rescale_epsilon": (0.1, {"rescale_values": True}),
    "num_atoms": (51, {"critic": "categorical"}),
    "value_range": ((-3.0, 3.0), {"critic": "categorical"}),
    "return_bound": (0.5, {"normalize_rewards": True}),
    "exploration_end": (0.5, {"exploration": "linear"}),
    "critic_action_layer": (1, {}),
    "critic_hidden": ((8,), {}),
    "initializer_final_bound": (0.003, {}),
    "demonstration_priority_epsilon": (1.0, PER),
    "share_by_priority": (True, PER),
    "hindsight": None,  # for environments with goals
    "hindsight_share": None,
    "decoupled_weight_decay": (True, {"actor_weight_decay": 0.1, "weight_decay": 0.1}),
    "train_at_episode_end": (True, {"recurrent": "none"}),
    "clip_range": (0.001, {}),
    "clip_range_decay": ("linear", {"clip_range": 0.01}),
    "clip_value": (True, {"clip_range": 0.01}),
    "target_kl": (1e-6, {"learning_rate": 0.01}),
    "observation_statistics": ("steps", {"normalize_observations": True}),
    "observation_clip": (0.5, {"normalize_observations": True}),
    "normalization_prior": (0.5, {"normalize_rewards": True}),
    "rollout_steps": (4, {}),
    "minibatches": (4, {}),
}


def alternative(algorithm: Algorithm, name: str) -> tuple[Any, dict[str, Any]] | None:
    """Return another value of an option, and the options that it needs to have an effect; None if there is none."""
    entry = (ALTERNATIVES | algorithm.alternatives).get(name, (getattr(algorithm, name), {}))
    if entry is None:
        return None
    value, needed = entry
    if value == getattr(algorithm, name):
        value = _other(value, get_type_hints(type(algorithm), include_extras=True)[name])
    return value, {key: other for key, other in needed.items() if key in algorithm.options()}


def _other(value: Any, hint: Any) -> Any:
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 0.5 * value if value else 0.1
    if isinstance(value, tuple):
        return tuple(0.5 * part if isinstance(part, float) else part + 1 for part in value) or (8,)
    raise AssertionError(f"Add another value than {value!r} to `alternatives`.")


def is_custom(kind: type[Algorithm], name: str) -> bool:
    """Return whether an option is a custom network."""
    hint = get_type_hints(kind)[name]
    return get_origin(hint) in (Union, UnionType) and set(get_args(hint)) <= {CustomNetwork, NoneType}
