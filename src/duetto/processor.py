"""The processor that computes: another one may round the last bit of a sum differently."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Processor(NamedTuple):
    """A processor's name and instructions, which tell it apart from others."""

    name: str  # "AMD EPYC 9B14"; virtual machines may hide the model
    abilities: str  # instructions that it has, as a checksum of eight digits; "" where nothing says them

    def __str__(self) -> str:
        return f"{self.name} ({self.abilities})" if self.abilities else self.name


@cache
def processor() -> Processor:
    """The processor of this machine."""
    if (found := _told()) is None:
        return Processor(platform.processor() or platform.machine() or "an unknown processor", "")
    flags = " ".join(sorted(_flags(found)))
    name = " ".join(found.get("model name", "").split()) or platform.machine()
    return Processor(name, hashlib.sha256(flags.encode()).hexdigest()[:8] if flags else "")


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products of bfloat16; True where nothing says which it has."""
    flags = _flags(_told() or {})
    return not flags or not flags.isdisjoint(("amx_bf16", "avx512_bf16", "bf16"))  # the last one is ARM's


def _told() -> dict[str, str] | None:
    """Fields of Linux's `/proc/cpuinfo` by name; None elsewhere."""
    with suppress(OSError):
        lines = {line for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines() if ":" in line}
        return dict(sorted((name.strip(), value.strip()) for name, value in (line.split(":", 1) for line in lines)))
    return None


def _flags(found: dict[str, str]) -> set[str]:
    return set((found.get("flags") or found.get("Features") or "").split())
