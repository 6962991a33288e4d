"""`duetto export RUN [--format onnx|torch|jax] [--output FILE] [--checkpoint last|best|STEP]`."""

from __future__ import annotations

import json as json_file
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from duetto.runs.run import Run
from duetto.tools.cli.options import Checkpoint, Json, RunFolder, Trust
from duetto.tools.cli.output import print_json, print_notices
from duetto.tools.export.writing import Format
from duetto.tools.export.writing import export as write
from duetto.training.progress_lines import working


def export(
    run: RunFolder,
    format: Annotated[Format, arg(help="For ONNX Runtime, for torch.export.load, or for jax.export.")] = "onnx",
    output: Annotated[str | None, arg(help="The file; by default in the run's folder.", metavar="FILE")] = None,
    checkpoint: Checkpoint = "last",
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Write the agent as one graph: from observations to actions in the environment's units.

    The graph is kept if it acts as the agent does in the run's environment. FILE.json describes its inputs and outputs.
    """
    trained = Run(run, trust=trust)
    with working(Console(stderr=True), f"exporting {run}") as tell:
        tell("writing and testing the graph")
        path = write(trained, format, output, checkpoint)
    about = json_file.loads(Path(f"{path}.json").read_text("utf-8"))
    if json:
        print_json({"run": run, "checkpoint": checkpoint, **about, "file": str(path), "notices": trained.notices})
        return
    print_notices(trained.notices)
    for kind in ("inputs", "outputs"):
        for port in about[kind]:
            shape = ", ".join(map(str, port["shape"]))
            print(f"{kind[:-1]:7} {port['name']:24} {port['dtype']:8} ({shape})  {port['about']}")
    checked = about["checked"]
    actions = [port for port in about["outputs"] if port["name"].startswith("action")]  # the others are hidden states
    numbers = any(port["dtype"].startswith("float") for port in actions)
    difference = f"largest difference {checked['largest_difference']:.0e} of the range"
    difference = difference if numbers and not checked["differing"] else f"{checked['differing']} choices differ"
    print(
        f"{path}: acts as the agent of step {about['step']:,} on {checked['observations']} observations ({difference})."
    )
