"""One measurement of one library's training speed, in a process of its own.

    python contenders.py NAME ALGORITHM THREADS PRECISION SECONDS     prints one line of JSON
    python contenders.py --list                                       what this interpreter has, as JSON

Every contender trains TD3 or DDPG on HalfCheetah-v5 with the settings in `task`, through its own public interface and
its own training loop.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import peers
from task import (
    BATCH,
    CAPACITY,
    DISCOUNT,
    HIDDEN,
    LEARNING_RATE,
    NOISE,
    POLICY_DELAY,
    RANDOM_STEPS,
    STEPS,
    TARGET_CLIP,
    TARGET_NOISE,
    TAU,
    Clock,
)

PRECISIONS = ("float32", "bf16")
RECORDED = ("torch", "jax", "jaxlib", "flax", "equinox", "optax", "numpy", "gymnasium", "mujoco")


def ours(backend: str, clock: Clock, algorithm: str, threads: int, precision: str = "float32") -> None:
    import duetto

    shared: dict[str, Any] = {
        "random_steps": RANDOM_STEPS,
        "learning_starts": RANDOM_STEPS,
        "exploration_noise": NOISE,
        "actor_learning_rate": LEARNING_RATE,
        "critic_learning_rate": LEARNING_RATE,
        "hidden": HIDDEN,
        "batch_size": BATCH,
        "replay_capacity": CAPACITY,
        "tau": TAU,
        "discount": DISCOUNT,
    }
    twins = {
        "policy_delay": POLICY_DELAY,
        "target_noise": TARGET_NOISE,
        "target_noise_clip": (-TARGET_CLIP, TARGET_CLIP),
    }

    def watch(session: Any) -> None:
        if session.step == 1:
            clock.watch(session.learner, "update")

    duetto.train(
        duetto.TD3(**shared, **twins) if algorithm == "td3" else duetto.DDPG(**shared),
        clock,
        steps=STEPS,
        backend=backend,
        device="cpu",
        precision=precision,
        threads=threads,
        evaluate_every=0,
        checkpoint_every=0,  # metrics.jsonl and TensorBoard events stay on, as they are by default
        callbacks=[watch],
    )


@dataclass(frozen=True)
class Contender:
    label: str
    backend: str
    needs: tuple[str, ...]  # distributions, the library's own first
    run: Callable[..., None]
    precisions: tuple[str, ...] = ("float32",)

    @property
    def ours(self) -> bool:
        return self.needs[0] == "duetto"


CONTENDERS = {
    "duetto-jax": Contender("Duetto", "JAX", ("duetto", "jax", "equinox", "optax"), partial(ours, "jax"), PRECISIONS),
    "duetto-torch": Contender("Duetto", "PyTorch", ("duetto", "torch"), partial(ours, "torch"), PRECISIONS),
    "sbx": Contender("SBX", "JAX", ("sbx-rl",), peers.sbx),
    "sb3": Contender("Stable-Baselines3", "PyTorch", ("stable-baselines3",), peers.stable_baselines3),
    "skrl-torch": Contender("skrl", "PyTorch", ("skrl", "torch"), peers.skrl_torch),
    "skrl-jax": Contender("skrl", "JAX", ("skrl", "jax", "flax"), peers.skrl_jax),
    "tianshou": Contender("Tianshou", "PyTorch", ("tianshou",), peers.tianshou),
}


def installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def listing() -> dict[str, Any]:
    found = {
        name: installed(contender.needs[0])
        for name, contender in CONTENDERS.items()
        if all(installed(distribution) for distribution in (*contender.needs, "mujoco"))
    }
    packages = {name: found_version for name in RECORDED if (found_version := installed(name))}
    return {"contenders": found, "packages": {"python": platform.python_version()} | packages}


def settings(threads: int) -> dict[str, str]:
    """Each library's own thread setting; both cores stay there for all of them."""
    eigen = "" if threads > 1 else "--xla_cpu_multi_thread_eigen=false"
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "NPROC": str(threads),  # XLA's pool on a CPU
        "XLA_FLAGS": eigen,
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
    }


def main() -> None:
    if sys.argv[1:] == ["--list"]:
        print(json.dumps(listing()))
        return
    name, algorithm, threads, precision, seconds = sys.argv[1:]
    wanted = settings(int(threads))
    if any(os.environ.get(key) != value for key, value in wanted.items()):  # libraries read them when they are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)
    contender = CONTENDERS[name]
    options = {"precision": precision} if contender.ours else {}
    contender.run(Clock(float(seconds)), algorithm, int(threads), **options)
    raise SystemExit("the training loop ended before the clock")


if __name__ == "__main__":
    main()
