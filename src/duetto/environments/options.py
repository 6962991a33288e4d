"""An environment's options with their defaults, so that two ways of saying the same can be told from two things."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from duetto.environments import atari, families, masking, naming
from duetto.environments.atari import AtariOptions
from duetto.environments.minigrid import MiniGridOptions


def complete_options(environment: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` of `make` for this id, completed with the defaults of Duetto's own options.

    Raises:
        UsageError: A value is not one that the option can have, or the environment's package is missing.
    """
    game = atari.find(environment)
    if game:
        chosen = AtariOptions.of(options)
        return dataclasses.asdict(chosen) | {"sticky_actions": atari.sticky_actions(game, chosen)}
    if naming.family_of(environment) is families.MINIGRID:
        seen, others = MiniGridOptions.take(options)
        return dataclasses.asdict(seen) | others
    return ({masking.OPTION: False} if masking.can(environment) else {}) | dict(options)
