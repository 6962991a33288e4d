"""Measure one library's training speed once, in a separate process.

    python contenders.py NAME TASK DEVICE THREADS PRECISION SECONDS     prints one line of JSON
    python contenders.py --list                                         the libraries that this interpreter has, as JSON

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

import peers
from task import STEPS, TASKS, Clock, OffPolicy, OnPolicy, Task

PRECISIONS = ("float32", "bf16")
SOFT = ("sac", "crossq")  # written for SBX and Stable-Baselines3 only
CARTPOLE = ("ppo-cartpole", "ppo-cartpole-8-seeds")
RECORDED = ("torch", "jax", "jaxlib", "flax", "equinox", "optax", "numpy", "gymnasium", "mujoco", "ale-py")


@dataclass(frozen=True)
class Contender:
    """A library on one backend."""

    label: str
    backend: str
    needs: tuple[str, ...]  # required distributions, first the library itself
    off_policy: Callable[..., None]
    on_policy: Callable[..., None] | None
    precisions: tuple[str, ...] = ("float32",)
    without: tuple[str, ...] = ()  # tasks that the library cannot do, or that are not implemented here

    @property
    def ours(self) -> bool:
        return self.needs[0] == "duetto"

    def run(self, clock: Clock, task: Task, threads: int, **options: Any) -> None:
        train = self.off_policy if isinstance(task, OffPolicy) else self.on_policy
        assert train is not None
        train(clock, task, threads, **options)

    def tasks(self) -> list[str]:
        """Return the tasks that the installed packages can do."""
        return [
            name
            for name, task in TASKS.items()
            if name not in self.without
            and (self.on_policy is not None or isinstance(task, OffPolicy))
            and all(installed(needed) for needed in (*self.needs, task.needs))
        ]


# ------------------------------------------------------------------------------------- Duetto, as a user would write it
def duetto_off_policy(backend: str, clock: Clock, task: OffPolicy, threads: int, precision: str) -> None:
    import duetto

    shared: dict[str, Any] = {
        "random_steps": task.random_steps,
        "learning_starts": task.random_steps,
        "actor_learning_rate": task.learning_rate,
        "critic_learning_rate": task.learning_rate,
        "hidden": task.hidden,
        "critic_hidden": task.critic_hidden,
        "batch_size": task.batch_size,
        "replay_capacity": task.replay_capacity,
        "discount": task.discount,
    }
    noise, targets = {"exploration_noise": task.exploration_noise}, {"tau": task.tau}
    temperature = {"temperature_learning_rate": task.learning_rate}
    smoothing = {"target_noise": task.target_noise, "target_noise_clip": (-task.target_clip, task.target_clip)}
    smoothing |= {"target_update": "every_step" if task.every_update else "with_actor"}
    delay = {"policy_delay": task.policy_delay}
    kinds: dict[str, Any] = {
        "ddpg": lambda: duetto.DDPG(**shared, **noise, **targets),
        "td3": lambda: duetto.TD3(**shared, **noise, **targets, **delay, **smoothing),
        "sac": lambda: duetto.SAC(**shared, **targets, **temperature),
        "crossq": lambda: duetto.CrossQ(
            **shared,
            **temperature,
            **delay,
            adam_beta1=0.5,
            network="batch_renorm",
            initializer_gain=1.7320508,
        ),
    }

    def watch(trainer: Any) -> None:
        clock.updates = trainer.learner.updates

    options = _duetto_options(backend, task.device, threads, precision)
    duetto.train(kinds[task.algorithm](), clock.environment(), callbacks=[watch], **options)


def duetto_ppo(backend: str, clock: Clock, task: OnPolicy, threads: int, precision: str) -> None:
    import duetto

    algorithm = duetto.PPO(
        rollout_steps=task.rollout_steps,
        epochs=task.epochs,
        minibatches=task.minibatches,
        learning_rate=task.learning_rate,
        learning_rate_decay=task.decay,
        adam_epsilon=task.adam_epsilon,
        clip_range=task.clip_range,
        entropy_coefficient=task.entropy_coefficient,
        value_coefficient=task.value_coefficient,
        max_grad_norm=task.max_grad_norm,
        discount=task.discount,
        gae_lambda=task.gae_lambda,
        normalize_observations=False,
        normalize_rewards=False,
        hidden=task.hidden,
        activation="tanh",
        shared_torso=task.images,
    )

    clock = clock.of_all(task.seeds)

    def watch(trainer: Any) -> None:
        if trainer.config.run.seed == task.seeds - 1:  # the last seed: all seeds have made this step
            clock.at(trainer.step * task.seeds, trainer.learner.updates * task.minibatches * task.seeds)

    duetto.train(
        algorithm,
        task.environment,
        seeds=range(task.seeds) if task.seeds > 1 else None,
        num_envs=task.num_envs,
        environment_options={"episodic_life": True, "clip_rewards": True} if task.images else {},
        callbacks=[watch],
        **_duetto_options(backend, task.device, threads, precision),
    )


def _duetto_options(backend: str, device: str, threads: int, precision: str) -> dict[str, Any]:
    """Return Duetto's options: no evaluations and checkpoints; metrics and TensorBoard events as by default."""
    return {
        "steps": STEPS,
        "backend": backend,
        "device": device,
        "precision": precision,
        "threads": threads,
        "evaluate_every": 0,
        "checkpoint_every": 0,
    }


# ---------------------------------------------------------------------------------------------------- the contenders
def _ours(backend: str, *needs: str) -> Contender:
    label = {"jax": "JAX", "torch": "PyTorch"}[backend]
    runs = (partial(duetto_off_policy, backend), partial(duetto_ppo, backend))
    return Contender("Duetto", label, ("duetto", *needs), *runs, precisions=PRECISIONS)


CONTENDERS = {
    "duetto-jax": _ours("jax", "jax", "equinox", "optax"),
    "duetto-torch": _ours("torch", "torch"),
    "sbx": Contender("SBX", "JAX", ("sbx-rl",), peers.sbx, peers.sbx_ppo),
    "sb3": Contender(
        "Stable-Baselines3",
        "PyTorch",
        ("stable-baselines3",),
        peers.stable_baselines3,
        peers.stable_baselines3_ppo,
        without=("crossq",),
    ),
    "skrl-torch": Contender(
        "skrl",
        "PyTorch",
        ("skrl", "torch"),
        peers.skrl_torch,
        peers.skrl_torch_ppo,
        without=("ppo-breakout", *CARTPOLE, *SOFT),
    ),
    "skrl-jax": Contender(  # no PPO, since skrl's compiles for minutes (see README)
        "skrl", "JAX", ("skrl", "jax", "flax"), peers.skrl_jax, None, without=SOFT
    ),
    "tianshou": Contender(
        "Tianshou", "PyTorch", ("tianshou",), peers.tianshou, peers.tianshou_ppo, without=(*CARTPOLE, *SOFT)
    ),
}


def installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def listing() -> dict[str, Any]:
    contenders = {
        name: {"version": installed(contender.needs[0]), "tasks": tasks}
        for name, contender in CONTENDERS.items()
        if (tasks := contender.tasks())
    }
    packages = {name: number for name in RECORDED if (number := installed(name))}
    return {"contenders": contenders, "packages": {"python": platform.python_version()} | packages}


def settings(device: str, threads: int) -> dict[str, str]:
    """Return the environment variables for this number of threads; all cores stay available."""
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
    if any(os.environ.get(key) != value for key, value in wanted.items()):  # libraries read them at import
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)
    contender, task = CONTENDERS[name], replace(TASKS[task_name], device=device)
    options = {"precision": precision} if contender.ours else {}
    contender.run(Clock(task, float(seconds)), task, int(threads), **options)
    raise SystemExit("The training loop ended before the clock.")


if __name__ == "__main__":
    main()
