"""Measure the speed of Duetto's compiled loop, of its loop on the host and of rejax. Print a CSV row per timed part.

    python benchmarks/device_speed.py duetto ppo-cartpole            # needs gymnax, see docs/scale/device.md
    python benchmarks/device_speed.py rejax ppo-cartpole
    python benchmarks/device_speed.py host sac-pendulum-64           # the host's loop on Gymnasium's Pendulum-v1

Columns: library, task, round, steps per second, steps per second of CPU time, CPU seconds of the first call. Run the
libraries in turns. Steps per second of CPU time depend less on other processes of the machine. rejax 0.1.3 does not run
with gymnax 1.0, so a wrapper here lets the environment's `step` return five values.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROUNDS = 3
ENVS, ROLLOUT, EPOCHS, MINIBATCHES, RATE = 64, 128, 4, 4, 1e-3  # PPO's settings; hidden layers: 64-64, tanh
ROLLOUTS, UPDATES, WARM_UP = 30, 1000, 300
HORIZON = 10_000_000


def algorithm(task: str) -> Any:
    """Return Duetto's algorithm for a task."""
    from duetto import PPO, SAC

    if task == "ppo-cartpole":
        return PPO(rollout_steps=ROLLOUT, epochs=EPOCHS, minibatches=MINIBATCHES, learning_rate=RATE)
    units = int(task.rpartition("-")[2])
    return SAC(hidden=(units, units), random_steps=0, learning_starts=256, replay_capacity=100_000)


def duetto(task: str) -> Iterator[tuple[int, Callable[[], Any]]]:
    """Yield each timed part: its number of steps, and a function that makes them. The first part compiles."""
    import jax

    from duetto.runs.spec import RunSpec
    from duetto.runs.trainer_setup import new_trainer
    from duetto.storage.config import RunOptions

    ppo = task == "ppo-cartpole"
    environment, envs = ("gymnax:CartPole-v1", ENVS) if ppo else ("gymnax:Pendulum-v1", 1)
    options = RunOptions(steps=HORIZON, backend="jax", num_envs=envs, evaluate_every=0, checkpoint_every=0)
    folder = Path(tempfile.mkdtemp()) / "run"
    folder.mkdir()
    spec = RunSpec(algorithm(task), environment, options)
    with new_trainer(spec, spec.config(), folder) as trainer:
        parts, made = trainer.components, 0
        parts.reset()

        def advance(turns: int) -> None:
            nonlocal made
            parts.advance(turns, made, HORIZON)
            made += turns * parts.steps_at_once
            jax.block_until_ready(trainer.learner.state)

        for turns in (1, *([] if ppo else [WARM_UP]), *[ROLLOUTS if ppo else UPDATES] * ROUNDS):
            yield turns * parts.steps_at_once, lambda turns=turns: advance(turns)


def host(task: str) -> Iterator[tuple[int, Callable[[], Any]]]:
    """Yield the timed parts of Duetto's loop on the host, as `duetto` does."""
    from duetto.runs.spec import RunSpec
    from duetto.runs.trainer_setup import new_trainer
    from duetto.storage.config import RunOptions

    options = RunOptions(steps=HORIZON, backend="jax", evaluate_every=0, checkpoint_every=0, log_every=HORIZON)
    folder = Path(tempfile.mkdtemp()) / "run"
    folder.mkdir()
    spec = RunSpec(algorithm(task), "Pendulum-v1", options)
    with new_trainer(spec, spec.config(), folder) as trainer:
        trainer.components.reset()

        def advance(steps: int) -> None:
            for _ in range(steps):
                trainer._collect()
                for samples in trainer._due():
                    trainer._learn(samples)
            trainer.log.look()

        for steps in (260, WARM_UP, *[UPDATES] * ROUNDS):
            yield steps, lambda steps=steps: advance(steps)


def rejax(task: str) -> Iterator[tuple[int, Callable[[], Any]]]:
    """Yield the timed parts of rejax's PPO, as `duetto` does."""
    import gymnax
    import jax
    import jax.numpy as jnp
    from rejax import PPO

    made, parameters = gymnax.make("CartPole-v1")

    class FiveResults(type(made)):
        def step(self, *arguments: Any) -> Any:
            obs, state, reward, terminated, truncated, _ = super().step(*arguments)
            return obs, state, reward, jnp.logical_or(terminated, truncated), {}

    steps = ROLLOUTS * ENVS * ROLLOUT
    ppo = PPO.create(
        env=FiveResults(),
        env_params=parameters,
        num_envs=ENVS,
        num_steps=ROLLOUT,
        num_epochs=EPOCHS,
        num_minibatches=MINIBATCHES,
        learning_rate=RATE,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
        agent_kwargs={"hidden_layer_sizes": (64, 64), "activation": "tanh"},
    )
    program = jax.jit(ppo.replace(eval_callback=lambda *_: ()).train)
    compiled: list[Any] = []
    yield 0, lambda: compiled.append(program.lower(jax.random.PRNGKey(0)).compile())
    for round_ in range(ROUNDS):
        yield steps, lambda round_=round_: jax.block_until_ready(compiled[0](jax.random.PRNGKey(round_)))


def main(library: str, task: str) -> None:
    """Time a library's parts. The first parts, which compile and warm up, get no row."""
    parts = {"duetto": duetto, "host": host, "rejax": rejax}[library](task)
    untimed = 1 + (task != "ppo-cartpole")
    first = 0.0
    for number, (steps, act) in enumerate(parts):
        started, spent = time.perf_counter(), time.process_time()
        act()
        seconds, cpu = time.perf_counter() - started, time.process_time() - spent
        first = first or cpu
        if number >= untimed:
            row = (library, task, number - untimed, round(steps / seconds), round(steps / cpu), round(first, 1))
            print(*row, sep=",", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
