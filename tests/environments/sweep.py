"""Which of all registered environments continue exactly: saved, restored into new ones, and both stepped alike."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
from gymnasium.envs.registration import registry
from resuming import assert_equal, record

from duetto.environments import Stepper, make
from duetto.errors import UsageError

PACKAGES = {  # entry points begin with this: what has to be imported first
    "gymnasium.envs.classic_control": None,
    "gymnasium.envs.toy_text": None,
    "gymnasium.envs.box2d": None,
    "gymnasium.envs.mujoco": None,
    "pybullet_envs_gymnasium": "pybullet_envs_gymnasium",
    "minigrid": "minigrid",
}


def names() -> list[str]:
    """Every registered id of these packages."""
    for package in filter(None, PACKAGES.values()):
        importlib.import_module(package)
    entries = {name: str(spec.entry_point) for name, spec in registry.items()}
    return sorted(name for name, entry in entries.items() if entry.startswith(tuple(PACKAGES)))


def continues_exactly(name: str, before: int = 60, after: int = 300) -> bool | None:
    """Whether it does; None where it cannot be made or trained on here."""
    steppers: list[Stepper] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            steppers += [make(name), make(name)]
            steppers[0].reset(7)
        except UsageError:
            return None
        random = np.random.default_rng(0)
        record(steppers[0], random, before)
        state, numbers = steppers[0].state_dict(), random.bit_generator.state
        if state["environments"] is None:
            return False
        expected = record(steppers[0], random, after)
        steppers[1].load_state_dict(state)
        random.bit_generator.state = numbers
        try:
            assert steppers[1].resumed_exactly
            assert_equal(expected, record(steppers[1], random, after))
        except AssertionError:
            return False
        finally:
            for stepper in steppers:
                stepper.close()
    return True
