"""The processor that computes: another one may round the last bit of a sum differently."""

from __future__ import annotations

import hashlib
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Processor(NamedTuple):
    """What tells processors apart."""

    name: str  # "AMD EPYC 9B14"; virtual machines may hide the model
    abilities: str  # instructions that it has, as a checksum of eight digits; "" where nothing says them

    def __str__(self) -> str:
        return f"{self.name} ({self.abilities})" if self.abilities else self.name


@cache
def processor() -> Processor:
    """That of this machine."""
    with suppress(OSError):
        lines = {line for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines() if ":" in line}
        found = dict(sorted([part.strip() for part in line.split(":", 1)] for line in lines))
        flags = " ".join(sorted((found.get("flags") or found.get("Features") or "").split()))
        name = " ".join(found.get("model name", "").split()) or platform.machine()
        return Processor(name, hashlib.sha256(flags.encode()).hexdigest()[:8] if flags else "")
    return Processor(platform.processor() or platform.machine() or "an unknown processor", "")
