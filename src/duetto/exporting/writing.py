"""Writing a run's agent to a file that acts without Duetto, and a second file that says how to use it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

from duetto import learners, own_files
from duetto.errors import DuettoError, UsageError
from duetto.exporting.checking import Call, Verdict, check
from duetto.exporting.graph import Graph, Port, output
from duetto.extras import install
from duetto.learners.acting import OnlyActs
from duetto.networks.spaces import Dict
from duetto.runs.agent import Agent
from duetto.runs.run import Run
from duetto.storage import disk, within

Format = Literal["onnx", "torch", "jax"]
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {  # the file's ending, and what has to be installed
    "onnx": (".onnx", ("torch", "onnx", "onnxscript", "onnxruntime")),
    "torch": (".pt2", ("torch",)),
    "jax": (".stablehlo", ("jax",)),
}
_LARGEST_CONTRACT = 2**24  # bytes
ENVIRONMENTS = 3  # that the written file is tried in, side by side


def export(
    run: Run | str | Path, format: Format = "onnx", output: str | Path | None = None, checkpoint: str | int = "last"
) -> Path:
    """Write the agent as one graph, from observations to actions in the environment's units, and try it.

    The graph takes any number of environments at once, and gives the policy's best guess. A second file, with `.json`
    added to the name, has the names, shapes, dtypes and meanings of inputs and outputs. The run may have learned on
    either framework; the graph computes in float32. Before the written file is kept, it is compared with the agent in
    the run's environment.

    Args:
        run: A run, or its folder.
        format: "onnx" for ONNX Runtime, "torch" for `torch.export.load`, "jax" for `jax.export.deserialize`.
        output: The file; by default `agent` with the format's ending in the run's folder.
        checkpoint: "last", "best" or a step.

    Returns:
        The file.

    Raises:
        UsageError: A package is missing, the run's environment cannot be made here, or a file is there already that is
            no export.
        DuettoError: The written file does not act as the agent does; it is not kept.
    """
    if format not in get_args(Format):
        raise UsageError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
    ending, needed = FORMATS[format]
    lacking = [name for name in needed if find_spec(name) is None]
    if lacking:
        extra = "jax" if format == "jax" else "torch" if lacking == ["torch"] else "torch,onnx"
        are = "is" if len(lacking) == 1 else "are"
        raise UsageError(f"{', '.join(lacking)} {are} not installed. Install: {install(*extra.split(','))}")
    run = run if isinstance(run, Run) else Run(run)
    path = Path(output) if output else run.path / f"agent{ending}"
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Give the file a name in it, such as {path / f'agent{ending}'}.")
    about_it = path.with_name(f"{path.name}.json")
    _check_free(path, about_it)
    agent = run.agent(checkpoint, precision="float32")
    graph = _graph(agent)
    with closing(run.stepper(ENVIRONMENTS, agent=agent)) as stepper, _written_at(path), _new_folder(path) as folder:
        temporary = Path(folder) / f"agent{ending}"
        written = _written(graph, agent, temporary, format)
        verdict = check(graph, written, agent.policy, stepper, run.config.run.seed)
        about = _contract(agent, graph, format, temporary, path.name, verdict)
        disk.publish_file(about_it, f"{json.dumps(about, indent=2, default=str)}\n".encode())
        temporary.replace(path)
    return path


def _check_free(path: Path, about_it: Path) -> None:
    """Raise UsageError if a file would be lost; an earlier export may be replaced, and so may a link."""
    for file in (path, about_it):
        if file.exists() and not file.is_symlink() and not _is_export(path, about_it):
            raise UsageError(f"{file} is there already and is no export, so it is not replaced. Give another --output.")


def _is_export(path: Path, about_it: Path) -> bool:
    """Whether the second file is a `_contract` of the first."""
    try:
        about = json.loads(within.read_file(about_it, _LARGEST_CONTRACT))
    except (DuettoError, OSError, ValueError, RecursionError):
        return False
    return isinstance(about, dict) and about.get("file") == path.name and about.get("format") in FORMATS


@contextmanager
def _written_at(path: Path) -> Iterator[None]:
    """Turn an OSError while the file is written into a UsageError."""
    try:
        yield
    except OSError as error:
        because = error.strerror or error
        raise UsageError(f"{path} cannot be written: {because}. Give another --output.") from error


def _new_folder(path: Path) -> TemporaryDirectory[str]:
    """A temporary folder beside the file, of a random name: in a stranger's folder any other name may be a link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return TemporaryDirectory(prefix=".export-", dir=path.parent)


def _graph(agent: Agent) -> Graph:
    specs = agent.config.algorithm.networks(agent.observation_space, agent.action_space)
    dtypes = agent.action_structure.dtypes or {"": agent.action_dtype}
    return Graph(
        agent.config.algorithm,
        {name: specs[name] for name in agent.config.algorithm.acting_networks},
        agent.observation_space,
        agent.action_space,
        {name: dtype.name for name, dtype in dtypes.items()},
        dict(agent.carry_shapes),
        agent.normalizer.moments,
        agent.normalizer.clip,
        agent.masked,
    )


def _written(graph: Graph, agent: Agent, path: Path, form: Format) -> Call:
    """Write the file, and return a function that runs it."""
    acts: Any = OnlyActs(graph.algorithm)
    backend = "jax" if form == "jax" else "torch"
    learner: Any = learners.build(backend, acts, graph.observation, graph.action)
    parameters = agent.parameters()
    learner.load_parameters({name: parameters[name] for name in graph.specs})
    if form == "jax":
        from duetto.exporting import jax

        jax.write(graph, learner, path)
        return jax.reader(path, graph)
    from duetto.exporting import torch

    torch.write(graph, learner, path, form)
    if form == "torch":
        return torch.reader(path, graph)
    from duetto.exporting import onnx

    return onnx.reader(path)


def _contract(agent: Agent, graph: Graph, form: Format, file: Path, name: str, verdict: Verdict) -> dict[str, Any]:
    """The contents of the second file."""
    packages = ("duetto", *(package for package in FORMATS[form][1]))
    return {
        "file": name,
        "format": form,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "algorithm": graph.algorithm.name(),
        "environment": own_files.short(agent.config.environment),
        "environment_options": agent.config.environment_options,
        "step": agent.step,
        "parameters": agent.fingerprint,
        "inputs": [_described(port, form) for port in graph.inputs],
        "outputs": [_described(port, form) for port in graph.outputs],
        **({"action": agent.action_structure.named(output)} if isinstance(graph.action, Dict) else {}),
        "checked": asdict(verdict),
        "versions": {package: version(package) for package in packages},
    }


def _described(port: Port, form: Format) -> dict[str, Any]:
    dtype = port.dtype
    if form == "jax":
        from duetto.exporting.jax import narrow

        dtype = narrow(dtype)
    return {"name": port.name, "shape": ["N", *port.shape], "dtype": dtype, "about": port.about}
