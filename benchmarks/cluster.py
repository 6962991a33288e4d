"""What the distance to actors costs: environments that only sleep, stepped in this process and on a Ray cluster.

    python benchmarks/cluster.py --output benchmarks/results/cluster.md

Sleeping costs no CPU, so many actors fit on few cores; learning and acting are left out. Installs nothing.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from report import circumstances, publish, table

import duetto
from duetto import environments
from duetto.cluster.placing import place
from duetto.storage.config import versions

METHOD = """\
{envs} environments that sleep in `step` and give what HalfCheetah gives (17 numbers), in this process or in the pace
`exact` on a Ray cluster on this machine. Steps are those of all environments together, in the median of {seconds:g}
seconds of vector steps. *Distance*: what a vector step takes beyond the sleeping of the actor's environments, one after
another; with an oversleeping kernel, and with other processes on the machine, it is an upper bound."""

ACTOR = """\
One actor, from the moment that the run asks for it to its environment's first observation, Ray's own start of a process
included; what it holds then. A Ray process that does nothing holds 80 MB of that already."""


class Sleeping(gymnasium.Env):
    """Takes a known time for nothing."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (6,), np.float32)

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(17, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.seconds:
            time.sleep(self.seconds)
        return np.zeros(17, np.float32), 0.0, False, False, {}


def vector_step(stepper: environments.Stepper, seconds: float) -> float:
    """Median seconds of a vector step."""
    actions, took = np.zeros((stepper.num_envs, 6), np.float32), []
    stepper.reset(0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(took) < 20:
        began = time.perf_counter()
        stepper.step(actions)
        took.append(time.perf_counter() - began)
    return median(took[5:])


def rows(milliseconds: float, envs: int, actors: list[int], seconds: float) -> list[list[str]]:
    """A table's rows: local, then each number of actors."""
    found = []
    how: dict[str, Any] = {"num_envs": envs, "kwargs": {"seconds": milliseconds / 1000}}
    for count in (0, *actors):
        notices: list[str] = []
        if count:
            cluster = duetto.Cluster(actors=count, pace="exact")
            stepper = place(
                Sleeping, how | {"worker_timeout": 60.0}, lambda c=cluster: c.connect(c.actors), count, notices
            )
        else:
            stepper = environments.make(Sleeping, **how)
        took = vector_step(stepper, seconds)
        stepper.close()
        sleeping = -(-envs // (count or 1)) * milliseconds
        numbers = (envs / took, took * 1000, took * 1000 - sleeping)
        found.append([f"{count} actors" if count else "local", *(f"{number:,.1f}" for number in numbers)])
        print(found[-1], flush=True)
    return found


def actor(environment: str) -> list[str]:
    """A row about one actor with one environment: when it has made its first observation, and what it holds then."""
    transport = duetto.Cluster(actors=1, pace="exact").connect(1)
    began = time.perf_counter()
    stepper = place(environment, {"num_envs": 1, "worker_timeout": 60.0}, lambda: transport, 1, [])
    stepper.reset(0)
    took = time.perf_counter() - began
    [process] = [one for one in Path("/proc").glob("[0-9]*") if _command(one).startswith(b"ray::Host")]
    held = dict(line.split(":") for line in (process / "smaps_rollup").read_text().splitlines()[1:])
    resident, shared = (int(held[kind].split()[0]) / 1024 for kind in ("Rss", "Pss"))
    numbers = (process / "stat").read_text().rpartition(")")[2].split()
    cpu = (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")
    stepper.close()
    found = [environment, f"{took:.1f}", f"{cpu:.1f}", f"{resident:.0f}", f"{shared:.0f}"]
    print(found, flush=True)
    return found


def _command(process: Path) -> bytes:
    with suppress(OSError):
        return (process / "cmdline").read_bytes()
    return b""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--milliseconds", type=float, nargs="+", default=[0, 1, 10])
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--environments", nargs="+", default=["Pendulum-v1", "HalfCheetah-v5"], help="of single actors")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    about = circumstances({"Versions": versions(("python", "duetto", "numpy", "gymnasium", "ray"))})
    text = ["# Distance to actors", about, METHOD.format(envs=options.envs, seconds=options.seconds)]
    for milliseconds in options.milliseconds:
        header = [f"{milliseconds:g} ms a step", "steps/s", "vector step, ms", "distance, ms"]
        text.append(table(header, rows(milliseconds, options.envs, options.actors, options.seconds)))
    text.append(ACTOR)
    header = ["an actor of", "seconds", "CPU seconds", "resident MB", "MB, shared pages by parts"]
    text.append(table(header, [actor(environment) for environment in options.environments]))
    publish("\n\n".join(text), options.output)


if __name__ == "__main__":
    main()
