"""What acting costs in NumPy, PyTorch and JAX: CPU microseconds of a call, and a process that only acts.

    python benchmarks/acting.py --output benchmarks/results/acting.md

Each measurement is a process of its own with one thread; contenders take turns. A call is `collect`, or `remember` of
recurrent networks, from NumPy arrays to NumPy arrays. The process makes an environment, acts for a hundred steps, and
tells its memory. The Nature network (Mnih et al., 2015) in NumPy is not Duetto's: it is here to see what it would cost.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from report import circumstances, publish, table

ROWS = (1, 4, 16)
CONTENDERS = ("numpy", "torch", "jax")
NETWORKS = {
    "TD3 400-300": ("TD3", {"hidden": (400, 300)}, 6),
    "SAC 256-256": ("SAC", {"hidden": (256, 256)}, 6),
    "PPO 64-64, twice": ("PPO", {"hidden": (64, 64)}, 6),
    "DQN 128-128": ("DQN", {"hidden": (128, 128)}, 0),
    "R2D2 LSTM 128": ("R2D2", {"hidden": (128,), "recurrent_size": 128, "head_hidden": (128,)}, 0),
    "Nature network": ("DQN", {"hidden": ()}, 0),
}
ENVIRONMENTS = ("Pendulum-v1", "HalfCheetah-v5")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


# ------------------------------------------------------------------------------------------------ microseconds
def call(contender: str, network: str, rows: int, seconds: float) -> float:
    """Median CPU seconds of a call for `rows` observations of 17 numbers, or of 4 frames."""
    algorithm, spaces = _case(network)
    random = np.random.default_rng(0)
    noise, _ = algorithm.explorer().draw(random, np.zeros((rows, spaces[1].size), np.float32), 0, 100, spaces[1])
    image = network == "Nature network"
    obs = random.integers(256, size=(rows, 4, 84, 84), dtype=np.uint8) if image else _normal(random, rows, 17)
    if image and contender == "numpy":
        weights = _weights(random)
        return _median(lambda: _nature(weights, obs), seconds)
    actor = _actor(contender, algorithm, spaces)
    if not actor.recurrent:
        return _median(lambda: actor.collect(obs, noise), seconds)
    from duetto.training.recurrence import Recurrence

    seen = Recurrence(actor, spaces[1], rows).window(obs, np.zeros(rows, bool))
    return _median(lambda: actor.remember("collect", seen, noise), seconds)


def _case(network: str) -> tuple[Any, tuple[Any, Any]]:
    import duetto
    from duetto.networks.spaces import Box, Discrete

    name, options, numbers = NETWORKS[network]
    vector = Box((17,), "float32", (-np.inf,) * 17, (np.inf,) * 17)
    frames = Box((4, 84, 84), "uint8", (0.0,), (255.0,))
    action = Box((numbers,), "float32", (-1.0,) * numbers, (1.0,) * numbers) if numbers else Discrete(6)
    return getattr(duetto, name)(**options), (frames if network == "Nature network" else vector, action)


def _actor(contender: str, algorithm: Any, spaces: tuple[Any, Any]) -> Any:
    from duetto import learners
    from duetto.learners import acting
    from duetto.networks.initial import initial_parameters

    if contender != "numpy":
        acts: Any = acting.OnlyActs(algorithm)
        backend: Any = contender
        return acting.FrameworkActing(learners.build(backend, acts, *spaces, threads=1))
    actor = acting.build(algorithm, *spaces, backend="torch")
    random = np.random.default_rng(0)
    actor.load({name: initial_parameters(actor.specs[name], random) for name in algorithm.acting_networks})
    return actor


def _median(function: Any, seconds: float) -> float:
    for _ in range(20):
        function()
    took, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.process_time()
        function()
        took.append(time.process_time() - began)
    return median(took)


# ------------------------------------------------------------------------------------------------ images by hand
def _weights(random: np.random.Generator) -> list[np.ndarray]:
    """Of convolutions on images with the channels last, as matrices, and of two layers behind them."""
    sizes = ((256, 32), (512, 64), (576, 64), (3136, 512), (512, 7))
    return [_normal(random, *size) / np.float32(np.sqrt(size[0])) for size in sizes]


def _nature(weights: list[np.ndarray], frames: np.ndarray) -> np.ndarray:
    """(B, 4, 84, 84) bytes to (B, 7): each convolution as one product of its patches."""
    x = np.moveaxis(frames, 1, -1).astype(np.float32) * np.float32(1 / 255)
    for weight, kernel, stride in zip(weights, (8, 4, 3), (4, 2, 1), strict=False):
        views = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(1, 2))[:, ::stride, ::stride]
        batch, height, width = views.shape[:3]
        patches = np.ascontiguousarray(np.moveaxis(views, 3, -1)).reshape(batch * height * width, -1)
        x = np.maximum(patches @ weight, 0).reshape(batch, height, width, -1)
    x = np.maximum(x.reshape(len(x), -1) @ weights[3], 0)
    return x @ weights[4]


def _normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.normal(size=shape).astype(np.float32)


# ------------------------------------------------------------------------------------------------ a process
def process(contender: str, environment: str) -> dict[str, float]:
    """Megabytes and CPU seconds of this process, once it has acted for a hundred steps."""
    import duetto
    from duetto import environments
    from duetto.training.collector import Collector
    from duetto.training.normalizer import Normalizer

    algorithm = duetto.TD3(hidden=(400, 300), random_steps=0)
    stepper = environments.make(environment)
    actor = _actor(contender, algorithm, (stepper.observation_space, stepper.action_space))
    collector = Collector(algorithm, stepper, actor, Normalizer(stepper.observation_space, "off"), 0)
    stepper.reset(0)
    for step in range(100):
        collector.collect(step, 1000)
    status = Path("/proc/self/status").read_text()
    kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return {"megabytes": kilobytes / 1024, "cpu": time.process_time()}


def _measured(*arguments: str) -> dict[str, float]:
    began = time.perf_counter()
    command = [sys.executable, __file__, "--inside", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | ONE_THREAD)
    return json.loads(done.stdout.splitlines()[-1]) | {"whole": time.perf_counter() - began}


def measure(rounds: int, seconds: float) -> str:
    """Both tables."""
    calls: dict[tuple[str, int, str], list[float]] = {}
    processes: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(rounds):
        for network in NETWORKS:
            for contender in CONTENDERS:
                found = _measured("call", contender, network, str(seconds))
                for rows in ROWS:
                    calls.setdefault((network, rows, contender), []).append(1e6 * found[str(rows)])
        for environment in ENVIRONMENTS:
            for contender in CONTENDERS:
                processes.setdefault((environment, contender), []).append(_measured("process", contender, environment))
    first = [
        [network, str(rows), *(f"{median(calls[network, rows, contender]):.0f}" for contender in CONTENDERS)]
        for network in NETWORKS
        for rows in ROWS
    ]
    second = [
        [environment, contender, *(f"{median(one[key] for one in found):.2f}" for key in ("megabytes", "cpu", "whole"))]
        for (environment, contender), found in processes.items()
    ]
    return "\n\n".join(
        (
            table(["CPU µs of a call", "observations", *CONTENDERS], first),
            table(["a process", "acts by", "MB", "CPU seconds", "seconds"], second),
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--inside", nargs="+")
    options = parser.parse_args()
    match options.inside:
        case ["call", contender, network, seconds]:
            print(json.dumps({rows: call(contender, network, rows, float(seconds)) for rows in ROWS}))
        case ["process", contender, environment]:
            print(json.dumps(process(contender, environment)))
        case _:
            from duetto.storage.config import versions

            about = circumstances({"Versions": versions(("python", "duetto", "numpy", "torch", "jax", "gymnasium"))})
            publish(f"# Acting\n\n{about}\n\n{measure(options.rounds, options.seconds)}", options.output)


if __name__ == "__main__":
    main()
