"""The tasks of the speed benchmark, with the same settings for each library, and the clock that measures it."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

import gymnasium

STEPS = 1_000_000  # steps that each library is to make; the clock ends the run much earlier


@dataclass(frozen=True)
class OffPolicy:
    """TD3, DDPG, SAC or CrossQ: one update per step of one environment."""

    algorithm: str
    about: str
    environment: str = "HalfCheetah-v5"
    needs: str = "mujoco"  # the distribution of the environment
    num_envs: int = 1
    random_steps: int = 1_000  # learning starts after them
    learning_steps: int = 500  # before the clock starts, for compilation and caches
    replay_capacity: int = 1_000_000
    batch_size: int = 256
    hidden: tuple[int, int] = (400, 300)
    critic_hidden: tuple[int, int] = (400, 300)
    learning_rate: float = 1e-3
    exploration_noise: float = 0.1  # not in SAC and CrossQ; CrossQ also lacks `tau`
    tau: float = 0.005
    discount: float = 0.99
    policy_delay: int = 2  # in TD3 and CrossQ; the next three fields are for TD3 only
    every_update: bool = False  # whether Duetto's targets move at every update; else only with the actor
    target_noise: float = 0.2
    target_clip: float = 0.5
    cycle: int = 1  # steps of all environments until the loop repeats
    updates: int = 1  # in each cycle
    device: str = "cpu"

    @property
    def twins(self) -> bool:
        return self.algorithm == "td3"

    @property
    def soft(self) -> bool:
        return self.algorithm in ("sac", "crossq")

    @property
    def warm_steps(self) -> int:
        return self.random_steps + self.learning_steps


@dataclass(frozen=True)
class OnPolicy:
    """PPO: rollouts of all environments, then epochs of minibatches over them."""

    about: str
    environment: str
    needs: str
    num_envs: int
    rollout_steps: int  # in each environment
    epochs: int
    minibatches: int
    learning_rate: float
    decay: Literal["constant", "linear"]
    clip_range: float
    entropy_coefficient: float
    hidden: tuple[int, ...] = ()  # after the convolutions; without images, of the policy and of the value
    value_coefficient: float = 0.5
    max_grad_norm: float = 0.5
    adam_epsilon: float = 1e-5
    discount: float = 0.99
    gae_lambda: float = 0.95
    warm_cycles: int = 2  # before the clock starts; JAX may compile again for the outputs of the first cycle
    seeds: int = 1  # trained at once, if the library can; the steps of all seeds count
    algorithm: str = "ppo"
    device: str = "cpu"

    @property
    def images(self) -> bool:
        return self.needs == "ale-py"

    @property
    def linear(self) -> bool:
        return self.decay == "linear"

    @property
    def cycle(self) -> int:
        return self.num_envs * self.rollout_steps

    @property
    def batch_size(self) -> int:
        return self.cycle // self.minibatches

    @property
    def updates(self) -> int:
        return self.epochs * self.minibatches

    @property
    def warm_steps(self) -> int:
        return self.warm_cycles * self.cycle


Task = OffPolicy | OnPolicy


class Clock:
    """Counts each step at the same place of the loop; after `seconds` it prints the counts and ends the process.

        steps    |  warm-up  |  cycle  |  cycle  |  cycle  |  cycle ...
                             ^ starts              seconds ^ ends: the first boundary after them

    A cycle is a step and its update in TD3, a rollout and its epochs in PPO. Only whole cycles count.
    """

    def __init__(self, task: Task, seconds: float) -> None:
        self._task, self._seconds = task, seconds
        self.updates = self._updates_before = 0
        self._started = self._cpu_started = 0.0

    def of_all(self, seeds: int) -> Clock:
        """Return a clock for the steps and updates of several seeds together."""
        return Clock(replace(self._task, num_envs=seeds * self._task.num_envs), self._seconds)  # type: ignore[arg-type]

    def environment(self) -> Any:
        """Make one environment, and count its steps."""
        return self.count_steps(gymnasium.make(self._task.environment, disable_env_checker=True))

    def count_steps(self, environment: Any) -> Any:
        """Count the steps of an environment, or of a library's vector of all environments; return it."""
        step, done = environment.step, 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            self.at(done, self.updates)
            done += self._task.num_envs
            return step(*args, **kwargs)

        environment.step = counted
        return environment

    def count_updates(self, owner: Any, method: str, each: int = 1) -> None:
        """Count the updates of a method that makes `each` per call, to check that no update is missing."""
        update = getattr(owner, method)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.updates += each
            return update(*args, **kwargs)

        setattr(owner, method, counted)

    def at(self, steps: int, updates: int) -> None:
        """Record the steps over all environments and the updates so far."""
        if steps < self._task.warm_steps or steps % self._task.cycle:
            return
        if steps == self._task.warm_steps:
            self._updates_before = updates
            self._started, self._cpu_started = time.perf_counter(), time.process_time()
        elif time.perf_counter() - self._started >= self._seconds:
            self._finish(steps - self._task.warm_steps, updates - self._updates_before)

    def _finish(self, steps: int, updates: int) -> NoReturn:
        result = {
            "steps": steps,
            "updates": updates,
            "seconds": time.perf_counter() - self._started,
            "cpu_seconds": time.process_time() - self._cpu_started,
        }
        print("\n" + json.dumps(result), flush=True)
        for process in multiprocessing.active_children():
            process.terminate()
        os._exit(0)  # works inside any library's loop, and before the library writes files


REPLAY = """\
One HalfCheetah-v5, one update per step, batch 256, networks 400-300 (ReLU), Adam 1e-3, replay of a million transitions,
exploration noise 0.1{twins}. 1,000 random steps and 500 learning steps pass before the clock starts.

Known differences: SBX moves its targets at every update in TD3 too. skrl on JAX has a replay of 15,000 (it copies all
of it at every step). Stable-Baselines3 and Tianshou store float64 observations, as the environment gives them."""

SOFT = """\
One HalfCheetah-v5, one update per step, batch 256, {networks}, replay of a million transitions, a learned temperature.
1,000 random steps and 500 learning steps pass before the clock starts.

Known differences: {differences}"""

ATARI = """\
Breakout without sticky actions: frame-skip 4, 84x84 grey, 4 frames, an episode per life, rewards clipped to their sign.
8 environments x 128 steps, 4 epochs of 4 minibatches of 256, Nature CNN for policy and value together, Adam 2.5e-4
(epsilon 1e-5) falling linearly, clip 0.1, entropy 0.01, value 0.5, gradient norm 0.5, discount 0.99, lambda 0.95. Two
cycles of 1,024 steps pass before the clock starts.

Known differences: SBX trains convolutions for the policy and for the value, and copies them to each other; Tianshou
runs its shared ones for each separately, and once more over the rollout for the values and the probabilities; every
library has its own wrappers for the emulator."""

CHEETAH = """\
{rollout}, 10 epochs of minibatches of 64, separate networks 64-64 (tanh), Adam 3e-4, clip 0.2, value
0.5, gradient norm 0.5, discount 0.99, lambda 0.95; no library normalizes observations or rewards. Two cycles of
2,048 steps pass before the clock starts.

Known differences: skrl normalizes advantages over the rollout, the others over the minibatch; its Adam has epsilon
1e-8. Tianshou computes the values and the probabilities of a rollout once more after it."""


CARTPOLE = """\
8 CartPole-v1 x 32 steps, 20 epochs of the whole rollout, separate networks 64-64 (tanh), Adam 1e-3 falling linearly,
clip 0.2, value 0.5, gradient norm 0.5, discount 0.98, lambda 0.8.{seeds} Two cycles pass before the clock starts.

Known differences: none are known."""

SEEDS = """ Eight seeds: Duetto trains them side by side in one process (`--seeds
0-7`) and the steps are those of all; the others train one after another, so theirs are those of one."""


def _cartpole(seeds: int) -> OnPolicy:
    return OnPolicy(
        about=CARTPOLE.format(seeds=SEEDS if seeds > 1 else ""),
        environment="CartPole-v1",
        needs="gymnasium",
        num_envs=8,
        rollout_steps=32,
        epochs=20,
        minibatches=1,
        learning_rate=1e-3,
        decay="linear",
        clip_range=0.2,
        entropy_coefficient=0.0,
        hidden=(64, 64),
        discount=0.98,
        gae_lambda=0.8,
        seeds=seeds,
    )


def _cheetah(num_envs: int, rollout_steps: int, rollout: str) -> OnPolicy:
    return OnPolicy(
        about=CHEETAH.format(rollout=rollout),
        environment="HalfCheetah-v5",
        needs="mujoco",
        num_envs=num_envs,
        rollout_steps=rollout_steps,
        epochs=10,
        minibatches=32,
        learning_rate=3e-4,
        decay="constant",
        clip_range=0.2,
        entropy_coefficient=0.0,
        hidden=(64, 64),
    )


TASKS: dict[str, Task] = {
    "td3": OffPolicy("td3", REPLAY.format(twins=", delay 2")),
    "ddpg": OffPolicy("ddpg", REPLAY.format(twins="")),
    "td3-256": OffPolicy(
        "td3",
        REPLAY.format(twins=", TD3 with delay 2, targets moved at every update").replace("400-300", "256-256"),
        hidden=(256, 256),
        critic_hidden=(256, 256),
        every_update=True,
    ),
    "td3-1024": OffPolicy(
        "td3",
        REPLAY.format(twins=", delay 2").replace("400-300", "1024-1024").replace("batch 256", "batch 1,024"),
        hidden=(1024, 1024),
        critic_hidden=(1024, 1024),
        batch_size=1024,
    ),
    "sac": OffPolicy(
        "sac",
        SOFT.format(
            networks="networks 256-256 (ReLU), Adam 3e-4",
            differences="Stable-Baselines3 stores float64 observations, as the environment gives them.",
        ),
        hidden=(256, 256),
        critic_hidden=(256, 256),
        learning_rate=3e-4,
    ),
    "crossq": OffPolicy(
        "crossq",
        SOFT.format(
            networks="actor 256-256, critics 512-512 (ReLU, batch renormalization), Adam 1e-3, delay 3",
            differences="none are known.",
        ),
        hidden=(256, 256),
        critic_hidden=(512, 512),
        policy_delay=3,
    ),
    "ppo-breakout": OnPolicy(
        about=ATARI,
        environment="BreakoutNoFrameskip-v4",
        needs="ale-py",
        num_envs=8,
        rollout_steps=128,
        epochs=4,
        minibatches=4,
        learning_rate=2.5e-4,
        decay="linear",
        clip_range=0.1,
        entropy_coefficient=0.01,
    ),
    "ppo-halfcheetah-1": _cheetah(1, 2048, "One HalfCheetah-v5 x 2,048 steps"),
    "ppo-halfcheetah-8": _cheetah(8, 256, "8 HalfCheetah-v5 x 256 steps"),
    "ppo-cartpole": _cartpole(seeds=1),
    "ppo-cartpole-8-seeds": _cartpole(seeds=8),
}
