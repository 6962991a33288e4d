"""The sources of a run's algorithm and of its first networks, in few words, for labels and errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duetto.storage.origin import Origin


@dataclass(frozen=True)
class Source:
    """A source of code or networks: `whole` decides equality, `words` are shown."""

    words: str = field(compare=False)
    whole: Any

    def __str__(self) -> str:
        return self.words


def of_algorithm(algorithm: dict[str, Any]) -> Source:
    """The source of an algorithm, `Duetto` or `mine.py:Mine (sha256 1a2b3c4d)`, from `algorithm` in `config.yaml`.

    Raises KeyError, TypeError or AttributeError if its `from` is not what `Origin.to_dict` gives.
    """
    if not algorithm.get("from"):
        return Source("Duetto", None)
    origin = Origin.from_dict(algorithm["from"])
    name = f"{Path(origin.file).name}:{origin.kind}" if origin.file else str(origin.kind)
    words = f"{name} (sha256 {origin.checksum[:8]})" if origin.checksum else name
    return Source(words, (origin.kind, origin.checksum))


def is_older(before: str, now: str) -> bool:
    """Whether `before` are the same words, of a version that recorded a class from Python by its name alone."""
    return now.startswith(f"{before} (sha256 ")


def of_networks(config: dict[str, Any]) -> Source:
    """The source of the first networks, `scratch` or `td3-Pendulum-v1-s0 (last, step 300)`, from a whole `config.yaml`.

    Raises KeyError, TypeError or AttributeError if its `from` is not what `Beginning.to_dict` gives.
    """
    if not (began := config.get("from")):
        return Source("scratch", None)
    whole = {name: value for name, value in began.items() if name != "signature"}
    with_it = [f"with {name}" for name in ("optimizers", "memory") if began.get(name)]
    step = [] if began.get("step") is None else [f"step {began['step']}"]
    details = ", ".join([str(began.get("checkpoint")), *step, *with_it])
    return Source(f"{Path(began['run']).name} ({details})", whole)
