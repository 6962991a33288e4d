"""Run folders without training: only the files that curves, tables and reports read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

VERSIONS = {"python": "3.11.7", "duetto": "0.1.0", "git": "0123456789ab"}


def write_synthetic_run(
    folder: Path,
    returns: Sequence[float],
    *,
    seed: int = 0,
    algorithm: str = "td3",
    environment: str = "Pendulum-v1",
    metrics: dict[str, Sequence[Any]] | None = None,
    options: dict[str, Any] | None = None,
    command: str = "duetto train td3 Pendulum-v1",
    versions: dict[str, str] | None = None,
) -> Path:
    """Write a run that was evaluated every ten steps.

    `metrics` has a list of values by name, one for each evaluation.
    """
    folder.mkdir(parents=True)
    config = {
        "algorithm": {"name": algorithm},
        "environment": {"id": environment, "options": options or {}, "remakeable": True},
        "run": {"steps": 20, "seed": seed, "backend": "torch"},
        "preset": "default",
        "command": command,
        "versions": VERSIONS if versions is None else versions,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    rows = [f"{10 * i},{value},1.5,{value - 2},{value + 2},7\n" for i, value in enumerate(returns)]
    head = "step,mean_return,std_return,min_return,max_return,episodes\n"
    (folder / "evaluations.csv").write_text(head + "".join(rows))
    lines = [
        {"step": 10 * i} | {name: values[i] for name, values in (metrics or {}).items()} | {"time/seconds": 90.0}
        for i in range(len(returns))
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
