"""Which options do nothing beside the others, as data: so that a run can say so of one that was set in vain.

Options go by the names that all algorithms share. `testing.conformance` sees that these do nothing, and that every
other counts.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from duetto.errors import UsageError
from duetto.networks.encoding import is_image, named_parts
from duetto.networks.spaces import Box

if TYPE_CHECKING:
    from duetto.algorithms.base import Algorithm
    from duetto.networks.spaces import Space

# While the options on the left all have such values, those on the right do nothing.
WHILE: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    ({"recurrent": "none"}, ("recurrent_size", "recurrent_layers", "burn_in", "unroll", "overlap", "stored_carry")),
    ({"recurrent": "none"}, ("learn_from_start", "priority_mix", "previous_reward")),
    ({"burn_in": 0}, ("learn_from_start",)),
    ({"network": "simba"}, ("activation",)),  # its blocks have ReLU
    ({"prioritized": False}, ("priority_exponent", "priority_epsilon", "priority_mix", "importance_exponent")),
    ({"prioritized": False}, ("importance_anneal_samples", "demonstration_priority_epsilon", "margin_in_priority")),
    ({"importance_exponent": 0.0}, ("importance_anneal_samples",)),
    ({"importance_exponent": 1.0}, ("importance_anneal_samples",)),  # it begins where it would end
    ({"priority_exponent": 0.0}, ("priority_epsilon", "importance_exponent", "importance_anneal_samples")),
    ({"epochs": 1}, ("target_kl", "recompute_advantages")),
    ({"share_by_priority": True}, ("demonstration_share",)),
    ({"margin_weight": 0.0}, ("margin", "margin_in_priority")),
    ({"hindsight": "none"}, ("hindsight_share",)),
    ({"rescale_values": False}, ("rescale_epsilon",)),
    ({"target_noise": 0.0}, ("target_noise_clip",)),
    ({"learn_temperature": False}, ("temperature_learning_rate", "target_entropy_scale")),
    ({"learning_rate_decay": "constant"}, ("learning_rate_final",)),
    ({"weight_decay": 0.0}, ("decoupled_weight_decay",)),
    ({"actor_weight_decay": 0.0, "critic_weight_decay": 0.0}, ("decoupled_weight_decay",)),
    ({"normalize_observations": False}, ("observation_statistics", "observation_clip")),
    ({"normalize_observations": False, "normalize_rewards": False}, ("normalization_prior",)),
    ({"exploration": "linear"}, ("ladder_exponent",)),
    ({"exploration": "exponential"}, ("ladder_exponent",)),
    ({"exploration": "ladder"}, ("exploration_end", "exploration_steps")),
    ({"exploration": "gaussian"}, ("ou_theta", "ou_dt", "ou_reset")),
    ({"exploration": "none"}, ("ou_theta", "ou_dt", "ou_reset", "exploration_noise", "exploration_scale")),
    ({"exploration": "none"}, ("exploration_final_scale", "exploration_scale_steps", "exploration_stops")),
    (
        {"exploration_scale": 1.0, "exploration_final_scale": 1.0, "exploration_stops": False},
        ("exploration_scale_steps",),
    ),
)
# The same of the options of a run without a cluster, whose actors are told the timeout, too.
RUN_WHILE: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (({"vectorization": "sync"}, ("worker_timeout",)),)


def idle(algorithm: Any) -> dict[str, str]:
    """The options of an algorithm that do nothing beside its others, as name to reason.

    Empty for a user's own algorithm: it may well read what the class that it extends does not.
    """
    return _idle(algorithm, WHILE) if type(algorithm).__module__.startswith("duetto.") else {}


def _idle(options: Any, table: tuple[tuple[dict[str, Any], tuple[str, ...]], ...]) -> dict[str, str]:
    ours = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    found: dict[str, str] = {}
    for those, names in table:
        if all(name in ours and ours[name] == value for name, value in those.items()):
            because = " and ".join(f"{name} is {_said(value)}" for name, value in those.items())
            found |= {name: because for name in names if name in ours and name not in found}
    return found


def notes_of_idle(algorithm: Any) -> list[str]:
    """A sentence for each reason why options that were changed from their defaults do nothing."""
    return _notes(algorithm, idle(algorithm))


def notes_of_replaced(algorithm: Algorithm, observation: Space, action: Space) -> list[str]:
    """The same sentences, on options that shape networks only, and only such as the user's own networks replace."""
    own = algorithm.custom_networks()
    if not own:
        return []
    ours = algorithm.with_options(**dict.fromkeys(own))
    here, there = (_shape(one, observation, action) for one in (algorithm, ours))
    found: dict[str, str] = {}
    for field in dataclasses.fields(algorithm):
        if field.name in own or getattr(algorithm, field.name) == field.default or field.default is dataclasses.MISSING:
            continue
        other = {field.name: field.default}
        try:
            shaped = [_shape(one.with_options(**other), observation, action) for one in (algorithm, ours)]
        except UsageError:  # it goes with others that it cannot be without
            continue
        if shaped[0] == here and shaped[1] != there:
            found[field.name] = f"{' and '.join(own)} {'are' if len(own) > 1 else 'is'} your own"
    return _notes(algorithm, found)


def notes_of_spaces(algorithm: Algorithm, observation: Space, action: Space) -> list[str]:
    """The same sentences, on options that count only with other spaces."""
    if not type(algorithm).__module__.startswith("duetto."):
        return []
    found: dict[str, str] = {}
    if not is_image(observation):
        found |= dict.fromkeys(("image_features", "compress_images"), "no observation is an image")
    if not any(isinstance(part, Box) for _, part in named_parts(action)):
        found["initial_log_std"] = "actions are choices"
    return _notes(algorithm, {name: why for name, why in found.items() if hasattr(algorithm, name)})


def _shape(algorithm: Algorithm, observation: Space, action: Space) -> dict[str, Any]:
    """All that the algorithm's networks depend on; of a user's own network no layers."""
    return {
        name: spec
        if spec.custom is None
        else (spec.custom, spec.members, [dataclasses.replace(head, **_plain(head)) for head in spec.heads])
        for name, spec in algorithm.networks(observation, action).items()
    }


def _plain(head: Any) -> dict[str, Any]:
    """Defaults of those fields of a head that shape layers or draw weights."""
    shaping = ("hidden", "activation", "blocks", "joins", "dueling", "gain", "initial_log_std")
    return {field.name: field.default for field in dataclasses.fields(head) if field.name in shaping}


def notes_of_idle_run(options: Any) -> list[str]:
    """The same sentences, on a run's own options; their backend is the one that the run has, not "auto"."""
    return _notes(options, _idle(options, RUN_WHILE))


def _notes(options: Any, found: dict[str, str]) -> list[str]:
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    in_vain = {name: why for name, why in found.items() if getattr(options, name) != defaults[name]}
    notes = []
    for why in dict.fromkeys(in_vain.values()):
        names = [name for name in in_vain if in_vain[name] == why]
        have = f"{', '.join(names[:-1])} and {names[-1]} have" if len(names) > 1 else f"{names[0]} has"
        notes.append(
            f"{have} no effect, because {why}. Change that, or leave {'them' if len(names) > 1 else 'it'} out."
        )
    return notes


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return value if isinstance(value, str) else f"{value:g}"
