"""Check that demonstrations are of the environment in which one wants to learn from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from duetto.demonstrations.episodes import Demonstrations
from duetto.environments import complete_options
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Space


def check_fits(
    demonstrations: Demonstrations,
    observation_space: Space,
    action_space: Space,
    environment: str,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Raise a UsageError with both specifications where the demonstrations are of another environment than this one.

    Options that are left out count as their defaults. The bounds of observations do not matter, those of actions do.
    """
    about = demonstrations.description
    theirs = _lines(about.environment, about.options, about.observation_space, about.action_space)
    ours = _lines(environment, options or {}, observation_space, action_space)
    if theirs == ours:
        return
    different = ", ".join(name for name in ours if ours[name] != theirs[name])
    raise UsageError(
        f"The demonstrations in {demonstrations.source} are of another environment than the one to learn in: "
        f"{different}.\n"
        + _table("demonstrations", theirs)
        + _table("training", ours)
        + "Record demonstrations of this environment with these options, or train in theirs."
    )


def _lines(environment: str, options: Mapping[str, Any], observation: Space, action: Space) -> dict[str, str]:
    complete = json.loads(json.dumps(complete_options(environment, options)))  # as it is read from a file
    return {
        "environment": environment,
        "options": ", ".join(f"{name}={complete[name]}" for name in sorted(complete)) or "none",
        "observations": spell(observation, bounds=False),
        "actions": spell(action),
    }


def _table(title: str, lines: Mapping[str, str]) -> str:
    return "".join([f"  {title}\n", *(f"    {name + ':':14}{text}\n" for name, text in lines.items())])


def spell(space: Space, *, bounds: bool = True) -> str:
    """Spell out a space in full, unlike `str`: with its dtype, and with its bounds where they are wanted."""
    if isinstance(space, Dict):
        return "Dict(" + ", ".join(f"{name}: {spell(part, bounds=bounds)}" for name, part in space.parts) + ")"
    if not isinstance(space, Box):
        return str(space)
    if not bounds:
        return f"Box({space.shape}, {space.dtype})"
    low, high = (_spell_bound(bound) for bound in (space.low, space.high))
    return f"Box({space.shape}, {space.dtype}, from {low} to {high})"


def _spell_bound(bound: tuple[float, ...]) -> str:
    return f"{bound[0]:.9g}" if len(set(bound)) == 1 else str([float(f"{value:.9g}") for value in bound])
