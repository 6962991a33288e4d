"""Duetto's footprint: memory and checkpoints of a full replay, sampling, imports, and what a training step consists of.

    python benchmarks/memory_and_checkpoint.py --output benchmarks/results/footprint.md

Everything is measured in fresh processes, one after the other; the sections can be chosen with --parts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from contenders import listing
from report import circumstances, publish, table

ENVIRONMENT = "HalfCheetah-v5"
OBSERVATION, ACTION = 17, 6
CAPACITY = 1_000_000
CHUNK = 10_000
UPDATES = 200  # before the first checkpoint
NEW = (1_000, 10_000, 100_000)  # transitions between checkpoints; the first of them by real training steps
WARM_STEPS = 500
LAUNCHES = 7


def make_session(folder: Path, backend: str, steps: int, **hyper_parameters: Any) -> Any:
    from duetto import TD3, Session
    from duetto.storage.config import Config, RunOptions

    options: Any = {"evaluate_every": 0, "checkpoint_every": 0, "backend": backend, "device": "cpu", "steps": steps}
    return Session(Config(TD3(**hyper_parameters), ENVIRONMENT, RunOptions(**options)), folder, ENVIRONMENT)


def fill(memory: Any, count: int) -> None:
    """Add random transitions of HalfCheetah's shapes."""
    from duetto.memory import Experience

    random = np.random.default_rng(0)
    while count:
        size = min(CHUNK, count)
        memory.add(
            Experience(
                env=np.zeros(size, np.int64),
                obs=random.standard_normal((size, OBSERVATION), np.float32),
                action=random.uniform(-1, 1, (size, ACTION)).astype(np.float32),
                reward=random.standard_normal(size, np.float32),
                next_obs=random.standard_normal((size, OBSERVATION), np.float32),
                terminated=np.zeros(size, bool),
                truncated=np.arange(size) % 1_000 == 999,
            )
        )
        count -= size


# ------------------------------------------------------------------------------------------------ memory, checkpoints
def full_replay(backend: str, prioritized: bool) -> dict[str, Any]:
    """Fill the replay, train, and checkpoint four times."""
    found: dict[str, Any] = {"checkpoints": []}
    with tempfile.TemporaryDirectory() as folder:
        session = make_session(
            Path(folder), backend, 10 * CAPACITY, learning_starts=CAPACITY, random_steps=0, prioritized=prioritized
        )
        found["built"] = _peak()
        fill(session.memory, CAPACITY)
        found["full"] = _peak()

        def save(new: int) -> None:
            before, began = _written(), perf_counter()
            session.checkpoint()
            seconds = perf_counter() - began
            found["checkpoints"].append({"new": new, "seconds": seconds, "bytes": _written() - before})

        def script() -> Iterator[None]:
            yield from _steps(UPDATES)
            found["trained"] = _peak()
            save(CAPACITY)
            yield from _steps(NEW[0])
            save(NEW[0])
            for new in NEW[1:]:
                fill(session.memory, new)
                session.step += new
                save(new)
            found["peak"] = _peak()
            session.stop()
            yield

        _run(session, script())
    return found


def _steps(count: int) -> Iterator[None]:
    for _ in range(count):
        yield


def _run(session: Any, script: Iterator[None]) -> None:
    """Train; after every step the script goes on to its next `yield`."""
    next(script)
    try:
        session.run(callbacks=[lambda _: next(script)])
    finally:
        session.close()


def _peak() -> float:
    """The most memory this process has held so far, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def _written() -> int:
    """Bytes that this process has handed to the kernel for writing."""
    return int(next(line for line in Path("/proc/self/io").read_text().splitlines() if "wchar" in line).split()[1])


def memory_section() -> str:
    memory, saves = [], []
    for backend, prioritized in (("jax", False), ("torch", False), ("jax", True)):
        found = _child("full_replay", backend, prioritized)
        label = backend + (", prioritised" if prioritized else "")
        memory.append([label, *(f"{found[key]:.2f}" for key in ("built", "full", "trained", "peak"))])
        for save in found["checkpoints"]:
            saves.append([label, f"{save['new']:,}", f"{save['seconds']:.3f}", f"{save['bytes'] / 1e6:.1f}"])
    return "\n\n".join(
        [
            "## A replay of a million HalfCheetah transitions\n\nTD3; peak resident memory in GB so far, when ...",
            table(["", "made, empty", "full", f"{UPDATES} updates later", "four checkpoints later"], memory),
            "Checkpoints, synced to disk; what is new since the one before:",
            table(["", "new transitions", "seconds", "MB written"], saves),
        ]
    )


# ------------------------------------------------------------------------------------------------ sampling
def sampling(prioritized: bool, batches: int = 3_000) -> dict[str, list[float]]:
    """Microseconds of `sample` and `feedback`, one by one."""
    from duetto import TD3, environments, memory

    stepper = environments.make(ENVIRONMENT)
    spec = TD3(prioritized=prioritized, replay_capacity=CAPACITY, learning_starts=CAPACITY).memory()
    random = np.random.default_rng(0)
    replay = memory.build(spec, stepper.observation_space, stepper.action_space, 1, random)
    assert isinstance(replay, memory.Replay)
    fill(replay, CAPACITY)
    found: dict[str, list[float]] = {"sample": [], "feedback": []}
    for number in range(batches + 100):
        times = [perf_counter()]
        sample = replay.sample()
        times.append(perf_counter())
        replay.feedback(sample, random.exponential(size=len(sample.index)) if prioritized else None)
        times.append(perf_counter())
        if number >= 100:
            found["sample"].append((times[1] - times[0]) * 1e6)
            found["feedback"].append((times[2] - times[1]) * 1e6)
    return found


def sampling_section() -> str:
    rows = []
    for prioritized in (False, True):
        for part, times in _child("sampling", prioritized).items():
            label = f"{'prioritised' if prioritized else 'uniform'}, {part}"
            rows.append([label, f"{median(times):.0f}", f"{np.percentile(times, 95):.0f}"])
    return "## 256 transitions out of a million\n\n" + table(["microseconds", "median", "95th percentile"], rows)


# ------------------------------------------------------------------------------------------------ imports
def imports_section() -> str:
    modules = "print(*sorted({'torch', 'jax', 'gymnasium'} & set(sys.modules)) or ['none'], file=sys.stderr)"
    cli = "import atexit, sys; atexit.register(lambda: {}); from duetto.cli import main; main({})"
    programs = {
        "python alone": "import sys; " + modules,
        "import duetto": "import sys, duetto; " + modules,
        "duetto --help": cli.format(modules, ["--help"]),
        "duetto train td3 --help": cli.format(modules, ["train", "td3", "--help"]),
    }
    rows = []
    for label, program in programs.items():
        times, done = [], None
        for _ in range(LAUNCHES):
            began = perf_counter()
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
            times.append(perf_counter() - began)
        rows.append([label, f"{median(times):.3f}", f"{max(times):.3f}", done.stderr.strip() if done else ""])
    return "## Start\n\nWhole processes, s.\n\n" + table(
        ["", "median", "most", "of torch, jax, gymnasium imported"], rows
    )


# ------------------------------------------------------------------------------------------------ a step's time
def profile(backend: str, seconds: float) -> dict[str, Any]:
    """Where a training step's time goes: with a wait after each update, then as it runs, then updates alone."""
    times: dict[str, float] = defaultdict(float)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        session = make_session(Path(folder), backend, CAPACITY, learning_starts=1_000, random_steps=1_000)
        parts: list[tuple[str, Any, str, Callable[[Any], Any]]] = [
            ("act", session.learner, "collect", lambda _: None),
            ("environment", session.stepper, "step", lambda _: None),
            ("store", session.memory, "add", lambda _: None),
            ("sample", session.memory, "sample", lambda _: None),
            ("update", session.learner, "update", lambda metrics: np.asarray(metrics.values)),  # waits for it
        ]

        def timed(name: str, call: Callable[..., Any], wait: Callable[[Any], Any]) -> Callable[..., Any]:
            def measured(*args: Any, **kwargs: Any) -> Any:
                began = perf_counter()
                result = call(*args, **kwargs)
                wait(result)
                times[name] += perf_counter() - began
                return result

            return measured

        def script() -> Iterator[None]:
            yield from _steps(1_000 + WARM_STEPS)
            for name, owner, method, wait in parts:
                setattr(owner, method, timed(name, getattr(owner, method), wait))
            steps, began = 0, perf_counter()
            while (spent := perf_counter() - began) < seconds:
                yield
                steps += 1
            found["parts"] = {name: part / steps for name, part in times.items()}
            found["waiting"] = spent / steps
            for _, owner, method, _ in parts:
                delattr(owner, method)
            steps, began = 0, perf_counter()
            while (spent := perf_counter() - began) < seconds:
                yield
                steps += 1
            found["free"] = spent / steps
            found["update_alone"] = _update_alone(session, seconds)
            session.stop()
            yield

        _run(session, script())
    return found


def _update_alone(session: Any, seconds: float) -> float:
    """Seconds of one update, back to back on one batch."""
    batch, metrics = session.memory.sample().batch, None
    count, began = 0, perf_counter()
    while perf_counter() - began < seconds:
        for _ in range(20):
            metrics = session.learner.update(batch, 0.0)
        np.asarray(metrics.values)  # pyright: ignore[reportOptionalMemberAccess]
        count += 20
    return (perf_counter() - began) / count


def profile_section(seconds: float) -> str:
    names = ["act", "environment", "store", "sample", "update"]
    backends = {backend: _child("profile", backend, seconds) for backend in ("jax", "torch")}
    rows: list[list[str]] = []
    for name in [*names, "the rest"]:
        row = [name]
        for found in backends.values():
            rest = found["waiting"] - sum(found["parts"].values())
            part = rest if name == "the rest" else found["parts"][name]
            row += [f"{part * 1e6:.0f}", f"{part / found['waiting']:.1%}"]
        rows.append(row)
    waiting = table(["", *(cell for backend in backends for cell in (f"{backend}, µs", "share"))], rows)
    free = [
        [
            backend,
            f"{found['free'] * 1e6:.0f}",
            f"{found['update_alone'] * 1e6:.0f}",
            f"{1 - found['update_alone'] / found['free']:.1%}",
            f"{1 / found['free']:.0f}",
        ]
        for backend, found in backends.items()
    ]
    header = ["as it runs", "step, µs", "update alone, µs", "share that is not the update", "steps/s"]
    intro = "One training step, TD3 on HalfCheetah-v5, float32, the default number of threads.\n\n"
    note = (
        "The first table waits for each update to end, to see its whole time. As it runs, JAX works on an update while "
        "the environment steps; *update alone* is back to back, on one batch."
    )
    return f"## A training step\n\n{intro}{waiting}\n\n{note}\n\n{table(header, free)}"


# ------------------------------------------------------------------------------------------------ the script
def _child(part: str, *arguments: Any) -> Any:
    """Call a function of this file in a fresh process."""
    command = [sys.executable, __file__, "--call", json.dumps([part, *arguments])]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = ["memory", "sampling", "imports", "profile"]
    parser.add_argument("--parts", nargs="+", default=sections, choices=sections)
    parser.add_argument("--seconds", type=float, default=15.0, help="for each measurement of the profile")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--call", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.call:
        part, *arguments = json.loads(options.call)
        print(json.dumps({"full_replay": full_replay, "sampling": sampling, "profile": profile}[part](*arguments)))
        return
    makers: dict[str, Callable[[], str]] = {
        "memory": memory_section,
        "sampling": sampling_section,
        "imports": imports_section,
        "profile": lambda: profile_section(options.seconds),
    }
    text = [f"# Footprint\n\n{circumstances({'Versions': listing()['packages']})}"]
    publish("\n\n".join(text + [makers[part]() for part in options.parts]), options.output)


if __name__ == "__main__":
    main()
