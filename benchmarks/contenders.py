"""One measurement of one library's training speed, in a process of its own.

    python contenders.py NAME TASK DEVICE THREADS PRECISION SECONDS     prints one line of JSON
    python contenders.py --list                                         what this interpreter has, as JSON

Every contender trains with the settings in `task`, through its own public interface and its own training loop.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import ours
import peers
import peers_ppo
import peers_ppo_tianshou
from clock import Clock
from task import TASKS, OffPolicy, Task

PRECISIONS = ("float32", "bf16")
SOFT = ("sac", "crossq")  # these two: written for SBX and Stable-Baselines3 only
CARTPOLE = ("ppo-cartpole", "ppo-cartpole-8-seeds")
RECORDED = ("torch", "jax", "jaxlib", "flax", "equinox", "optax", "numpy", "gymnasium", "mujoco", "ale-py")


@dataclass(frozen=True)
class Contender:
    label: str
    backend: str
    needs: tuple[str, ...]  # distributions, the library's own first
    off_policy: Callable[..., None]
    on_policy: Callable[..., None] | None
    precisions: tuple[str, ...] = ("float32",)
    without: tuple[str, ...] = ()  # tasks that it has no way to do, or that are not written for it

    @property
    def ours(self) -> bool:
        return self.needs[0] == "duetto"

    def run(self, clock: Clock, task: Task, threads: int, **options: Any) -> None:
        train = self.off_policy if isinstance(task, OffPolicy) else self.on_policy
        assert train is not None
        train(clock, task, threads, **options)

    def tasks(self) -> list[str]:
        """What it can do here, with what is installed."""
        return [
            name
            for name, task in TASKS.items()
            if name not in self.without
            and (self.on_policy is not None or isinstance(task, OffPolicy))
            and all(installed(needed) for needed in (*self.needs, task.needs))
        ]


def _ours(backend: str, *needs: str) -> Contender:
    label = {"jax": "JAX", "torch": "PyTorch"}[backend]
    runs = (partial(ours.off_policy, backend), partial(ours.on_policy, backend))
    return Contender("Duetto", label, ("duetto", *needs), *runs, precisions=PRECISIONS)


def _behind(backend: str, *needs: str) -> Contender:
    """With `--act-behind`, which is for algorithms with a replay memory."""
    plain = _ours(backend, *needs)
    train = partial(ours.off_policy, backend, act_behind=True)
    return replace(plain, backend=f"{plain.backend}, --act-behind", off_policy=train, on_policy=None)


CONTENDERS = {
    "duetto-jax": _ours("jax", "jax", "equinox", "optax"),
    "duetto-torch": _ours("torch", "torch"),
    "duetto-jax-behind": _behind("jax", "jax", "equinox", "optax"),
    "duetto-torch-behind": _behind("torch", "torch"),
    "sbx": Contender("SBX", "JAX", ("sbx-rl",), peers.sbx, peers_ppo.sbx),
    "sb3": Contender(
        "Stable-Baselines3",
        "PyTorch",
        ("stable-baselines3",),
        peers.stable_baselines3,
        peers_ppo.stable_baselines3,
        without=("crossq",),
    ),
    "skrl-torch": Contender(
        "skrl",
        "PyTorch",
        ("skrl", "torch"),
        peers.skrl_torch,
        peers_ppo.skrl_torch,
        without=("ppo-breakout", *CARTPOLE, *SOFT),
    ),
    "skrl-jax": Contender(  # README: its PPO compiles for minutes
        "skrl", "JAX", ("skrl", "jax", "flax"), peers.skrl_jax, None, without=SOFT
    ),
    "tianshou": Contender(
        "Tianshou", "PyTorch", ("tianshou",), peers.tianshou, peers_ppo_tianshou.tianshou, without=(*CARTPOLE, *SOFT)
    ),
}


def installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def listing() -> dict[str, Any]:
    found = {
        name: {"version": installed(contender.needs[0]), "tasks": tasks}
        for name, contender in CONTENDERS.items()
        if (tasks := contender.tasks())
    }
    packages = {name: found_version for name in RECORDED if (found_version := installed(name))}
    return {"contenders": found, "packages": {"python": platform.python_version()} | packages}


def settings(device: str, threads: int) -> dict[str, str]:
    """Each library's own thread setting; all cores stay there for all of them."""
    eigen = "" if threads > 1 else "--xla_cpu_multi_thread_eigen=false"
    hidden = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    return hidden | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "NPROC": str(threads),  # XLA's pool on a CPU
        "XLA_FLAGS": eigen,
    }


def main() -> None:
    if sys.argv[1:] == ["--list"]:
        print(json.dumps(listing()))
        return
    name, task_name, device, threads, precision, seconds = sys.argv[1:]
    wanted = settings(device, int(threads))
    if any(os.environ.get(key) != value for key, value in wanted.items()):  # libraries read them when they are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)
    contender, task = CONTENDERS[name], replace(TASKS[task_name], device=device)
    options = {"precision": precision} if contender.ours else {}
    contender.run(Clock(task, float(seconds)), task, int(threads), **options)
    raise SystemExit("the training loop ended before the clock")


if __name__ == "__main__":
    main()
