"""For all benchmarks: the circumstances of a measurement, and Markdown tables."""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path


def circumstances(packages: dict[str, dict[str, str]], device: str = "cpu") -> str:
    """Return machine, date, commit and versions as a Markdown list. `packages` has versions by interpreter."""
    lines = [
        f"- Machine: {_processor()}, {os.cpu_count()} cores, {_memory():.0f} GB of memory",
        f"- Load average at the start: {os.getloadavg()[0]:.2f}",
        f"- Date: {datetime.now(UTC):%Y-%m-%d}; commit {commit()}",
    ]
    if device == "cuda":
        lines.insert(1, f"- GPU: {_gpu()}")
    for label, versions in packages.items():
        lines.append(f"- {label}: " + ", ".join(f"{name} {number}" for name, number in versions.items()))
    return "\n".join(lines)


def commit() -> str:
    """Return the commit of this checkout, marked if files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(git, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; its first column is text, the others are numbers."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def publish(text: str, output: Path | None) -> None:
    """Print a text, and write it to `output`, if that is given."""
    print(text)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text.rstrip() + "\n", "utf-8")


def keep(header: Sequence[str], rows: Iterable[Sequence[object]], output: Path | None) -> None:
    """Write the raw rows to a CSV next to `output`, if it is given."""
    if output is None:
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def _gpu() -> str:
    """Return the name, memory and driver from `nvidia-smi`."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    name, memory, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    return f"{name}, {memory}, driver {driver}"


def _processor() -> str:
    """Return the processor's name and matrix units, since in virtual machines several generations share one name."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    said = {line.split(":", 1)[0].strip(): line.split(":", 1)[1].strip() for line in lines if ":" in line}
    flags = said.get("flags", "").split()
    units = {"amx_tile": "AMX", "avx512_bf16": "AVX-512 BF16", "avx512f": "AVX-512", "avx2": "AVX2"}
    said_of = [label for flag, label in units.items() if flag in flags][:1]
    if said.get("vendor_id") == "AuthenticAMD" and said["cpu family"] in ("25", "26"):  # all have the name "AMD EPYC"
        generation = 5 if said["cpu family"] == "26" else 4 if "avx512f" in flags else 3
        said_of.insert(0, f"Zen {generation}")
    return said.get("model name", "unknown processor") + (f" ({', '.join(said_of)})" if said_of else "")


def _memory() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
