"""`duetto export RUN [--format onnx|torch|jax] [--output FILE] [--checkpoint last|best|STEP]`."""

from __future__ import annotations

import json as json_file
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from duetto.cli.options import Json, Trust
from duetto.cli.output import print_json
from duetto.cli.showing import warn
from duetto.display.progress import working
from duetto.exporting.writing import Format
from duetto.exporting.writing import export as write
from duetto.runs.run import Run


def main(arguments: list[str]) -> None:
    """Parse, and export."""
    tyro.cli(export, args=arguments, prog="duetto export")


def export(
    run: Annotated[Positional[str], arg(help="The run's folder.")],
    format: Annotated[Format, arg(help="For ONNX Runtime, for torch.export.load, or for jax.export.")] = "onnx",
    output: Annotated[str | None, arg(help="The file; by default in the run's folder.", metavar="FILE")] = None,
    checkpoint: Annotated[str, arg(help="last, best, or a step.", metavar="last|best|STEP")] = "last",
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Write the agent as one graph: from observations to actions in the environment's units.

    It is tried beside the agent in the run's environment before it is kept. FILE.json says what goes in and comes out.
    """
    folder = Run(run, trust=trust)
    with working(Console(stderr=True), f"exporting {run}") as tell:
        tell("writing and trying the graph")
        path = write(folder, format, output, checkpoint)
    about = json_file.loads(Path(f"{path}.json").read_text("utf-8"))
    if json:
        print_json({"run": run, "checkpoint": checkpoint, **about, "file": str(path), "notices": folder.notices})
        return
    warn(folder)
    for kind in ("inputs", "outputs"):
        for port in about[kind]:
            print(f"{kind[:-1]:7} {_port(port)}")
    checked = about["checked"]
    apart = f"{checked['differing']} choices differ" if checked["differing"] else _apart(checked)
    print(f"{path}: acts as the agent of step {about['step']:,} on {checked['observations']} observations ({apart}).")


def _port(port: dict[str, Any]) -> str:
    return f"{port['name']:24} {port['dtype']:8} ({', '.join(map(str, port['shape']))})  {port['about']}"


def _apart(checked: dict[str, Any]) -> str:
    return f"largest difference {checked['largest_difference']:.0e} of the range"
