"""Updates per second of R2D2's learner, sampling and priorities included: both backends, and plain PyTorch.

    python benchmarks/recurrent.py --output benchmarks/results/recurrent.md

The task: 32 sequences of 40 steps (no burn-in), vector observations of 147 numbers, 7 actions, a layer of 128 units,
an LSTM of 128, dueling streams of 128, 5-step double Q with rescaled values, prioritised, target copied every 1,000
updates. Each measurement is a process of its own; contenders take turns. `plain` is what one writes by hand with
`nn.LSTM`: the same networks, loss and optimiser, sequences that lie ready in one array, priorities drawn by NumPy. R2D3
has a quarter of its sequences from demonstrations, and the one-step and the margin loss beside R2D2's. In bfloat16:
Duetto with `--precision bf16`, and the plain one's networks under autocast.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from contenders import listing, settings
from report import circumstances, keep, publish, table

OBSERVATION, ACTIONS, UNITS = 147, 7, 128
BATCH, STEPS, N_STEP, DISCOUNT = 32, 40, 5, 0.997
RATE, EPSILON, CLIP, TARGET_PERIOD = 5e-4, 1e-5, 40.0, 1000
EXPONENT, IMPORTANCE, MIX, RESCALE = 0.9, 0.6, 0.9, 1e-3
EPISODES, EPISODE = 100, 200  # in the memory
ENVIRONMENT = "MiniGrid-MemoryS9-v0"
WARM = 30  # updates before the clock starts


def ours(backend: str, threads: int, seconds: float, name: str = "r2d2", precision: str = "float32") -> float:
    """R2D2's updates; or R2D3's, with a quarter of demonstrations, and one-step and margin losses."""
    from duetto import learners
    from duetto.algorithms.base import SequenceBatch

    algorithm, replay, spaces = _memory(name)
    learner: Any = learners.build(backend, algorithm, *spaces, threads=threads, precision=precision)

    def update() -> None:
        sample = replay.sample()
        batch: SequenceBatch = sample.batch
        seen = algorithm.seen_reward(batch.obs.previous_reward)
        metrics = learner.update(batch._replace(obs=batch.obs._replace(previous_reward=seen)))
        replay.feedback(sample, np.asarray(metrics.priority))

    return rate(update, seconds)


def sampling(seconds: float) -> float:
    """Sequences per second that the memory alone gives."""
    _, replay, _ = _memory("r2d2")
    return BATCH * rate(replay.sample, seconds)


def acting(backend: str, seconds: float) -> dict[str, float]:
    """Seconds of a vector step of 16 MiniGrid environments: the environments alone, a forward pass alone, and all."""
    from duetto import environments, learners, memory
    from duetto.presets import choose
    from duetto.training.collector import Collector
    from duetto.training.normalizer import Normalizer

    algorithm = _with_preset("r2d2", choose("r2d2", ENVIRONMENT, None)[1].algorithm)
    stepper = environments.make(ENVIRONMENT, num_envs=16)
    spaces = stepper.observation_space, stepper.action_space
    learner: Any = learners.build(backend, algorithm, *spaces, threads=1)
    replay: Any = memory.build(algorithm.memory(), *spaces, 16, np.random.default_rng(0))
    collector = Collector(algorithm, stepper, learner, Normalizer(spaces[0], "off"), 0)
    random, windows = np.random.default_rng(0), []
    remember = learner.remember
    learner.remember = lambda *call: windows.append(call) or remember(*call)
    stepper.reset(0)

    def alone() -> None:
        stepper.step(random.integers(0, 7, 16))

    def forward() -> None:
        remember(*windows[0])

    def everything() -> None:
        replay.add(collector.collect(0, 1)[0])
        del windows[1:]

    calls = (("whole step", everything), ("forward pass", forward), ("environments", alone))
    found = {name: 1 / rate(call, seconds) for name, call in calls}
    stepper.close()
    return found


def whole(backend: str, environment: str) -> tuple[float, float]:
    """Steps and updates per second of whole runs: 16 environments, 8.8 steps trained for each that is made.

    At that ratio DI-engine's R2D2 was measured: 1,472 steps and 16.8 updates (of 771 steps each) per second.
    """
    import tempfile

    import duetto

    agent = duetto.R2D2(
        hidden=(UNITS,), recurrent_size=UNITS, head_hidden=(UNITS,), burn_in=0, unroll=STEPS, overlap=STEPS // 2,
        batch_size=BATCH, train_every=145, learning_starts=2_000, replay_capacity=100_000,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        options: Any = {"backend": backend, "num_envs": 16, "evaluate_every": 0, "checkpoint_every": 0}
        run = duetto.train(agent, environment, runs_dir=folder, steps=40_000, log_every=4_000, **options)
        first, last = run.metrics()[1], run.metrics()[-1]
    seconds = last["time/seconds"] - first["time/seconds"]
    return (last["step"] - first["step"]) / seconds, (last["learn/updates"] - first["learn/updates"]) / seconds


def _with_preset(name: str, fields: dict[str, Any]) -> Any:
    from duetto.algorithms import ALGORITHMS

    return ALGORITHMS[name](**{key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()})


def _memory(name: str) -> tuple[Any, Any, tuple[Any, Any]]:
    """The algorithm, its filled memory, and the spaces."""
    from duetto import memory
    from duetto.algorithms import ALGORITHMS
    from duetto.memory import Experience
    from duetto.networks.spaces import Box, Discrete

    algorithm: Any = ALGORITHMS[name](
        hidden=(UNITS,), recurrent_size=UNITS, head_hidden=(UNITS,), burn_in=0, unroll=STEPS, overlap=STEPS // 2,
        batch_size=BATCH, n_step=N_STEP, discount=DISCOUNT, learning_rate=RATE, adam_epsilon=EPSILON,
        max_grad_norm=CLIP, target_period=TARGET_PERIOD, priority_exponent=EXPONENT, importance_exponent=IMPORTANCE,
        priority_mix=MIX, rescale_epsilon=RESCALE, replay_capacity=2 * EPISODES * EPISODE, weight_decay=0.0,
    )  # fmt: skip
    observation, action = Box((OBSERVATION,), "float32", (0.0,), (1.0,)), Discrete(ACTIONS)
    random = np.random.default_rng(1)
    carry = {f"carry/q/{part}": np.zeros((1, 1, UNITS), np.float32) for part in ("h", "c")}
    experts = None
    if name == "r2d3":
        episodes = [_Episode(random) for _ in range(EPISODES)]
        experts = memory.Episodes(episodes, np.random.default_rng(2), np.random.default_rng(3))
    replay: Any = memory.build(
        algorithm.memory(), observation, action, 1, np.random.default_rng(0), demonstrations=experts
    )
    for episode in (_Episode(random) for _ in range(EPISODES)):
        for step in range(EPISODE):
            at = slice(step, step + 1)
            flags = np.array([step == EPISODE - 1]), np.array([False])
            steps = episode.obs[at], episode.action[at], episode.reward[at], episode.obs[step + 1 : step + 2]
            replay.add(Experience(np.zeros(1, np.int64), *steps, *flags, carry))
    return algorithm, replay, (observation, action)


class _Episode:
    terminated, truncated = True, False

    def __init__(self, random: np.random.Generator) -> None:
        self.obs = random.random((EPISODE + 1, OBSERVATION), np.float32)
        self.action, self.reward = random.integers(0, ACTIONS, EPISODE), random.random(EPISODE, np.float32)


def plain(threads: int, seconds: float, rounded: bool = False) -> float:
    import torch
    from torch import nn

    torch.set_num_threads(threads)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(OBSERVATION, UNITS)
            self.lstm = nn.LSTM(UNITS + ACTIONS + 1, UNITS, batch_first=True)
            self.value = nn.Sequential(nn.Linear(UNITS, UNITS), nn.ReLU(), nn.Linear(UNITS, 1))
            self.advantage = nn.Sequential(nn.Linear(UNITS, UNITS), nn.ReLU(), nn.Linear(UNITS, ACTIONS))

        @torch.autocast("cpu", torch.bfloat16, enabled=rounded)
        def forward(self, obs: Any, previous: Any, state: Any) -> Any:
            x = torch.cat([torch.relu(self.encoder(obs)), previous], -1)
            x, _ = self.lstm(x, state)
            advantage = self.advantage(x)
            return (self.value(x) + advantage - advantage.mean(-1, keepdim=True)).float()

    online, target = Network(), Network()
    target.load_state_dict(online.state_dict())
    adam = torch.optim.Adam(online.parameters(), RATE, eps=EPSILON)
    random, count = np.random.default_rng(0), EPISODES * EPISODE // (STEPS // 2)
    obs = random.random((count, STEPS + 1, OBSERVATION), np.float32)
    previous = random.random((count, STEPS + 1, ACTIONS + 1), np.float32)
    action = random.integers(0, ACTIONS, (count, STEPS))
    reward = random.random((count, STEPS), np.float32)  # n-step sums, ready made
    discount = np.full((count, STEPS), DISCOUNT**N_STEP, np.float32)
    state = np.zeros((2, count, 1, UNITS), np.float32)
    priorities, updates = np.ones(count), 0
    ahead = torch.clamp(torch.arange(STEPS) + N_STEP, max=STEPS)

    def rescale(x: Any) -> Any:
        return torch.sign(x) * (torch.sqrt(torch.abs(x) + 1) - 1) + RESCALE * x

    def unrescale(x: Any) -> Any:
        root = torch.sqrt(1 + 4 * RESCALE * (torch.abs(x) + 1 + RESCALE))
        return torch.sign(x) * (((root - 1) / (2 * RESCALE)) ** 2 - 1)

    def update() -> None:
        nonlocal updates
        probability = priorities**EXPONENT / (priorities**EXPONENT).sum()
        rows = random.choice(count, BATCH, p=probability)
        weight = (count * probability[rows]) ** -IMPORTANCE
        tensors = [torch.from_numpy(array[rows]) for array in (obs, previous, action, reward, discount)]
        seen, before, taken, summed, discounted = tensors
        carried = tuple(torch.from_numpy(part[rows]).transpose(0, 1).contiguous() for part in state)
        q = online(seen, before, carried)
        with torch.no_grad():
            best = q[:, ahead].argmax(-1, keepdim=True)
            value = target(seen, before, carried)[:, ahead].gather(-1, best)[..., 0]
            goal = rescale(summed + discounted * unrescale(value))
        error = q[:, :STEPS].gather(-1, taken[..., None])[..., 0] - goal
        loss = (torch.from_numpy((weight / weight.max()).astype(np.float32)) * (error**2).mean(1)).mean()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(online.parameters(), CLIP)
        adam.step()
        size = error.detach().abs()
        priorities[rows] = (MIX * size.amax(1) + (1 - MIX) * size.mean(1)).numpy() + 1e-5
        updates += 1
        if updates % TARGET_PERIOD == 0:
            target.load_state_dict(online.state_dict())

    return rate(update, seconds)


def rate(update: Any, seconds: float) -> float:
    """Calls per second."""
    for _ in range(WARM):
        update()
    began, count = perf_counter(), 0
    while perf_counter() - began < seconds:
        update()
        count += 1
    return count / (perf_counter() - began)


CONTENDERS: dict[str, Any] = {
    "Duetto, JAX": lambda threads, seconds: ours("jax", threads, seconds),
    "Duetto, PyTorch": lambda threads, seconds: ours("torch", threads, seconds),
    "plain PyTorch": plain,
    "Duetto, JAX, bfloat16": lambda threads, seconds: ours("jax", threads, seconds, precision="bf16"),
    "Duetto, PyTorch, bfloat16": lambda threads, seconds: ours("torch", threads, seconds, precision="bf16"),
    "plain PyTorch, bfloat16": lambda threads, seconds: plain(threads, seconds, rounded=True),
    "Duetto's R2D3, JAX": lambda threads, seconds: ours("jax", threads, seconds, "r2d3"),
    "Duetto's R2D3, PyTorch": lambda threads, seconds: ours("torch", threads, seconds, "r2d3"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--learners-only", action="store_true", help="no acting and no whole runs")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--call", nargs=2, metavar=("CONTENDER", "THREADS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.call:
        name, threads = options.call
        print(json.dumps(CONTENDERS[name](int(threads), options.seconds)))
        return
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.rounds):
        for threads in options.threads:
            for name in CONTENDERS:
                command = [sys.executable, __file__, "--seconds", str(options.seconds), "--call", name, str(threads)]
                done = subprocess.run(
                    command, env=os.environ | settings("cpu", threads), stdout=subprocess.PIPE, check=True
                )
                found.setdefault((name, threads), []).append(json.loads(done.stdout.splitlines()[-1]))
                print(name, threads, found[name, threads][-1], file=sys.stderr)
    raw = [(*key, number, round(rate, 3)) for key, rates in found.items() for number, rate in enumerate(rates, 1)]
    keep(["contender", "threads", "round", "updates_per_second"], raw, options.output)
    best = {name: max(options.threads, key=lambda count: median(found[name, count])) for name in CONTENDERS}
    plain_rate = median(found["plain PyTorch", best["plain PyTorch"]])
    rows = []
    for name in CONTENDERS:
        rates = [f"{median(found[name, threads]):.1f}" for threads in options.threads]
        rows.append([name, *rates, f"{median(found[name, best[name]]) / plain_rate:.2f}"])
    header = ["updates/s", *(f"{threads} thread(s)" for threads in options.threads), "times plain PyTorch"]
    head = circumstances({"Versions": listing()["packages"]})
    lines = [] if options.learners_only else _beside_learning(options.seconds)
    publish("\n\n".join([head, (__doc__ or "").split("\n\n")[2], table(header, rows), *lines]) + "\n", options.output)


def _beside_learning(seconds: float) -> list[str]:
    """A sentence on each: acting, whole runs, the memory alone."""
    lines: list[str] = []
    for backend in ("jax", "torch"):
        parts = acting(backend, seconds)
        own = 1 - (parts["environments"] + parts["forward pass"]) / parts["whole step"]
        times = ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in parts.items())
        lines.append(f"Acting in 16 environments of {ENVIRONMENT}, {backend}: {times}; {own:.0%} is the loop's own.")
    for environment in ("LunarLander-v3", ENVIRONMENT):
        for backend in ("jax", "torch"):
            steps, updates = whole(backend, environment)
            lines.append(
                f"Whole runs of {environment}, {backend}: {steps:,.0f} steps and {updates:.1f} updates per second."
            )
    return [*lines, f"The memory alone samples {sampling(seconds):,.0f} sequences per second."]


if __name__ == "__main__":
    main()
