"""Write a run's agent to a file that acts without Duetto, and check that the file acts as the agent does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from duetto import learners
from duetto.environments import ActionMap, VecEnv, obs_tree, to_gymnasium
from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install
from duetto.learners.policy import inference_only
from duetto.networks.spaces import Box, Dict
from duetto.runs.agent import Agent
from duetto.runs.run import Run
from duetto.storage import atomic_io, safe_open, user_code
from duetto.tools.export.graph import NEXT, Graph, output
from duetto.training.policy import EvaluationPolicy

Format = Literal["onnx", "torch", "jax"]
FORMATS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {  # file ending, packages, their extras
    "onnx": (".onnx", ("torch", "onnx", "onnxscript", "onnxruntime"), ("onnx",)),
    "torch": (".pt2", ("torch",), ("torch",)),
    "jax": (".stablehlo", ("jax",), ("jax",)),
}
_LARGEST_CONTRACT = 2**24  # bytes
ENVIRONMENTS, STEPS = 3, 200  # for the check of a written file
LARGEST = 1e-4  # allowed difference of a continuous action, relative to its range
TIES = 0.01  # share of discrete actions that may differ, since two actions may have nearly the same value
Call = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def export(
    run: Run | str | Path, format: Format = "onnx", output: str | Path | None = None, checkpoint: str | int = "last"
) -> Path:
    """Write the agent as one graph, from observations to actions in the environment's units, and check it.

    The graph takes any number of environments at once, and returns the policy's best actions, computed in float32. A
    second file, with `.json` added to the name, has the names, shapes, dtypes and meanings of inputs and outputs. The
    run may have learned on either framework. Duetto compares the written file with the agent in the run's environment,
    and keeps it if both act the same.

    Args:
        run: A run, or its folder.
        format: "onnx" for ONNX Runtime, "torch" for `torch.export.load`, "jax" for `jax.export.deserialize`.
        output: The file; by default `agent.onnx`, `agent.pt2` or `agent.stablehlo` in the run's folder.
        checkpoint: "last", "best" or a step.

    Returns:
        The file's path.

    Raises:
        UsageError: A package is missing, the run's environment cannot be made here, or the file exists and is not an
            export.
        DuettoError: The written file does not act as the agent does. It is deleted.
    """
    if format not in FORMATS:
        raise UsageError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
    ending, packages, extras = FORMATS[format]
    if missing := [name for name in packages if find_spec(name) is None]:
        raise UsageError(f"The format {format} needs {', '.join(missing)}. Install: {install(*extras)}")
    run = run if isinstance(run, Run) else Run(run)
    path = Path(output).absolute() if output else run.path / f"agent{ending}"
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Give the name of a file in it, such as {path / f'agent{ending}'}.")
    contract = path.with_name(f"{path.name}.json")
    for file in (file for file in (path, contract) if not file.is_symlink()):  # a link is replaced
        atomic_io.check_replaceable(file, lambda _: _is_export(path, contract), "export")
    agent = run.agent(checkpoint, precision="float32")
    graph = replace(_graph(agent), narrow=format == "jax")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            closing(run.stepper(ENVIRONMENTS, agent=agent)) as envs,
            TemporaryDirectory(prefix=".export-", dir=path.parent) as folder,  # a name that nobody can guess
        ):
            temporary = Path(folder) / f"agent{ending}"
            call = _write(graph, agent, temporary, format)
            checked = check(graph, call, agent.policy, envs, run.config.run.seed)
            about = _contract(agent, graph, format, temporary, path.name, checked)
            atomic_io.publish_file(contract, f"{json.dumps(about, indent=2, default=str)}\n".encode())
            temporary.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}. Give another --output.") from error
    return path


def _is_export(path: Path, contract: Path) -> bool:
    """Return whether `contract` is the JSON file of an export to `path`."""
    try:
        about = json.loads(safe_open.read_file(contract, _LARGEST_CONTRACT))
    except (DuettoError, OSError, ValueError, RecursionError):
        return False
    return isinstance(about, dict) and about.get("file") == path.name and about.get("format") in FORMATS


def _graph(agent: Agent) -> Graph:
    dtypes = agent.action_structure.dtypes or {"": agent.action_dtype}
    return Graph(
        agent.config.algorithm,
        agent.observation_space,
        agent.action_space,
        {name: dtype.name for name, dtype in dtypes.items()},
        dict(agent.carry_shapes),
        agent.normalizer.moments,
        agent.normalizer.clip,
        agent.masked,
    )


def _write(graph: Graph, agent: Agent, path: Path, form: Format) -> Call:
    """Write the file, and return a function that runs it on named arrays."""
    acts = inference_only(graph.algorithm)
    learner: Any = learners.build("jax" if form == "jax" else "torch", acts, graph.observation, graph.action)
    parameters = agent.parameters()
    learner.load_parameters({name: parameters[name] for name in acts.acting_networks})
    if form == "jax":
        from duetto.tools.export import jax_stablehlo

        jax_stablehlo.write(graph, learner, path)
        call = jax_stablehlo.reader(path, graph)
    else:
        from duetto.tools.export import torch_onnx

        torch_onnx.write(graph, learner, path, form)
        call = torch_onnx.reader(path) if form == "torch" else torch_onnx.onnx_reader(path, graph)

    def named(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = call(*(inputs[port.name] for port in graph.inputs))
        return {port.name: np.asarray(output) for port, output in zip(graph.outputs, outputs, strict=True)}

    return named


def _contract(
    agent: Agent, graph: Graph, form: Format, file: Path, name: str, checked: dict[str, float]
) -> dict[str, Any]:
    """Return the contents of the JSON file."""
    return {
        "file": name,
        "format": form,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "algorithm": graph.algorithm.name(),
        "environment": user_code.short(agent.config.environment),
        "environment_options": agent.config.environment_options,
        "step": agent.step,
        "parameters": agent.fingerprint,
        "inputs": [port.to_dict() for port in graph.inputs],
        "outputs": [port.to_dict() for port in graph.outputs],
        **({"action": agent.action_structure.named(output)} if isinstance(graph.action, Dict) else {}),
        "checked": checked,
        "versions": {package: version(package) for package in ("duetto", *FORMATS[form][1])},
    }


# ---------------------------------------------------------------------------------------------------- the check
def check(graph: Graph, written: Call, policy: EvaluationPolicy, envs: VecEnv, seed: int) -> dict[str, float]:
    """Act with the agent in environments, and compare its actions with those of the written graph.

    Return a dict with the number of observations, the largest difference of continuous actions (relative to their
    range), and the number of discrete actions that differ.

    Raises:
        DuettoError: The share of discrete actions that differ is above TIES, or the largest difference above LARGEST.
    """
    dtypes = {name: np.dtype(dtype) for name, dtype in graph.action_dtypes.items()}
    units = ActionMap(to_gymnasium(graph.action, dtypes.get(""), dtypes))
    policy.greedy = True
    envs.reset(seed)
    carried = {port.name: port.empty(envs.num_envs) for port in graph.inputs}
    reward = np.zeros(envs.num_envs, np.float32)
    observations = differing = 0
    largest = np.float64(0.0)
    for _ in range(STEPS):
        starts = envs.starts.copy()
        inputs = graph.as_given(obs_tree.copy(envs.obs))
        policy.rewarded(reward, np.arange(envs.num_envs))
        action = policy(envs.obs, starts)
        outputs = written(carried | inputs | ({"previous_reward": reward, "starts": starts} if graph.carries else {}))
        difference, differs = _compare(graph, graph.apart(units.to_environment(action)), outputs)
        largest, differing = np.maximum(largest, difference), differing + int(differs.sum())  # keeps NaN
        # As in use, the graph's carry comes from its own outputs, not from the agent.
        carried |= {name.removeprefix(NEXT): part for name, part in outputs.items() if name.startswith(NEXT)}
        observations += len(action)
        transition, _ = envs.step(action)
        reward = np.zeros(envs.num_envs, np.float32)
        reward[transition.env] = transition.reward
    if not largest <= LARGEST or differing > TIES * observations:
        raise DuettoError(
            f"The written file does not act as the agent does: {differing} of {observations} discrete actions differ, "
            f"and continuous actions by up to {largest:.1e} of their range. The file was deleted. Please report this, "
            "with config.yaml."
        )
    return {"observations": observations, "largest_difference": float(largest), "differing": differing}


def _compare(
    graph: Graph, expected: dict[str, np.ndarray], outputs: dict[str, np.ndarray]
) -> tuple[np.float64, np.ndarray]:
    """Return the largest difference of continuous actions, relative to their range, and where discrete ones differ.

    The second result is (N,). Raises DuettoError if a shape differs.
    """
    largest, differs = np.float64(0.0), np.zeros(1, bool)
    for port, (name, space) in zip(graph.outputs, graph.actions, strict=False):  # the carry's ports follow
        got, wanted = outputs[port.name], expected[name].reshape(-1, *port.shape)
        if got.shape != wanted.shape:
            raise DuettoError(f"The written file's {port.name} has the shape {got.shape}, the agent's {wanted.shape}.")
        if isinstance(space, Box):
            _, half = space.units()
            size: Any = np.reshape(np.where(half > 0, 2 * half, 1.0), space.shape)
            largest = np.maximum(largest, np.max(np.abs(wanted.astype(float) - got.astype(float)) / size))
        else:
            differs = differs | np.any((wanted != got).reshape(len(got), -1), axis=1)
    return largest, differs
