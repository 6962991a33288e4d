"""Configs: one key of config.yaml is changed by hand. What decides is refused, or said; what does not is free."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import damage
import numpy as np
import victims
import yaml
from sandbox import Verdict

WORDS = [
    "auto",
    "none",
    "relu",
    "tanh",
    "gaussian",
    "ou",
    "linear",
    "sampled",
    "collected",
    "torch",
    "jax",
    "sync",
    "x",
]


def other(value: Any, random: np.random.Generator) -> Any:
    """Another value of the same kind, or of none that belongs there."""
    if random.random() < 0.1:
        return [None, "x", -1, [], {}, True, 1e400, "1e-3"][random.integers(8)]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return [value + 1, value - 1, 2 * value, 0, value + 10][random.integers(5)]
    if isinstance(value, float):
        return [value / 2, value * 1.01, 0.0, 1.0, 0.18][random.integers(5)]
    if isinstance(value, str):
        return WORDS[random.integers(len(WORDS))]
    if isinstance(value, list):
        return [value[:-1], [*value, 8], [4], []][random.integers(4)]
    return {"g": 9.0} if isinstance(value, dict) else 1


def change(values: dict[str, Any], random: np.random.Generator) -> tuple[str, str]:
    """Change one key in place; returns it and how."""
    keys = sorted(damage.flat(values))
    key = keys[random.integers(len(keys))]
    part, _, name = key.partition("/")
    holder, name = (values[part], name) if name else (values, part)
    how = random.random()
    before = holder[name]
    if how < 0.05:
        del holder[name]
        return key, f"{before!r} taken out"
    if how < 0.1:
        holder[f"{name}x"] = holder.pop(name)
        return key, f"renamed to {name}x"
    holder[name] = other(before, random)
    return key, f"{before!r} became {holder[name]!r}"


def case(place: Path, victim: Path, random: np.random.Generator, tell: Callable[[str, str, str], None]) -> Verdict:
    """Change a key, and let somebody read the run; a resume may have been told that it is meant."""
    truth = victims.truth(victim)
    folder = victims.copy(victim, place / "home")
    path = folder / "config.yaml"
    original = yaml.safe_load(path.read_bytes())
    values = yaml.safe_load(path.read_bytes())
    key, deed = change(values, random)
    path.write_text(yaml.safe_dump(values, sort_keys=False), "utf-8")
    reading, read = damage.readers(random, truth["steps"])
    if accepted := reading == "resumed" and random.random() < 0.3:
        read = partial(victims.resume, accept_changes=True)
    tell(f"run/config.yaml: {key}", deed, f"{reading}, accepted" if accepted else reading)
    os.chdir(place / "home")
    verdict = damage.judge(folder, reading, read, truth, {key.split("/")[-1]}, original)
    shutil.rmtree(place / "home", ignore_errors=True)
    return verdict
