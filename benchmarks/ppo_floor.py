"""What PPO on Breakout costs at least on this machine, in PyTorch: the task `ppo-breakout` without any library.

    python benchmarks/ppo_floor.py --output benchmarks/results/ppo_floor.md

1,024 steps need 16 minibatches of 256 through the Nature CNN, 128 forward passes of 8 frames, and 1,024 steps of the
emulator. Each is timed alone and is the fastest of many; their sum bounds what a training loop that does one after the
other can reach. Needs PyTorch and ale-py. Each recipe runs in a fresh process: it inherits no memory from another.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from contenders import listing, settings
from report import circumstances, publish, table
from task import TASKS

TASK: Any = TASKS["ppo-breakout"]
ACTIONS = 4
WARM = 3
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # mallopt(3)


@dataclass(frozen=True)
class Recipe:
    about: str
    channels_last: bool = True
    tuned: bool = True
    keeps_memory: bool = False
    compiled: bool = False


RECIPES = {
    "plain": Recipe("as most write it: frames / 255, nn.Conv2d, nn.Linear, autocast", False, False),
    "channels-last": Recipe("the same with frames and weights in channels_last", True, False),
    "tuned": Recipe(
        "frames from uint8 in channels_last straight to the precision, 1 / 255 in the first weights, float32's large "
        "layer as a 7x7 convolution (oneDNN instead of MKL), one cast of each weight, fused Adam"
    ),
    "tuned-heap": Recipe("tuned, and freed memory stays with the process (mallopt)", keeps_memory=True),
    "compiled": Recipe("tuned-heap through torch.compile", keeps_memory=True, compiled=True),
}


def network(torch: Any, recipe: Recipe, precision: str) -> tuple[Any, Callable[[Any], tuple[Any, Any]]]:
    """The Nature CNN's layers, and the forward pass: frames (B, 4, 84, 84) to logits (B, 4) and values (B, 1)."""
    nn, relu = torch.nn, torch.relu
    dtype = torch.float32 if precision == "float32" else torch.bfloat16
    large = nn.Conv2d(64, 512, 7) if recipe.tuned and precision == "float32" else nn.Linear(3136, 512)
    convolutions = [nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3)]
    layers = nn.ModuleList([*convolutions, large, nn.Linear(512, ACTIONS), nn.Linear(512, 1)])
    if recipe.channels_last:
        layers = layers.to(memory_format=torch.channels_last)
    first, second, third, large, policy, value = layers

    def plain(frames: Any) -> tuple[Any, Any]:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            x = relu(third(relu(second(relu(first(frames.float() / 255))))))
            x = relu(large(x.flatten(1)))
            return policy(x).float(), value(x).float()

    def tuned(frames: Any) -> tuple[Any, Any]:
        def convolve(x: Any, layer: Any, scale: float = 1.0) -> Any:
            weight = layer.weight if scale == 1 else layer.weight * scale
            return relu(torch.conv2d(x, weight.to(dtype), layer.bias.to(dtype), layer.stride))

        x = convolve(convolve(convolve(frames.to(dtype), first, 1 / 255), second), third)
        if isinstance(large, nn.Conv2d):
            x = convolve(x, large).flatten(1)
        else:  # the weights' inputs in the order in which channels_last has them
            x = x.permute(0, 2, 3, 1).flatten(1)
            x = relu(nn.functional.linear(x, large.weight.to(dtype), large.bias.to(dtype)))
        x = x.float()
        return policy(x), value(x)

    return layers, tuned if recipe.tuned else plain


def loss(torch: Any, logits: Any, values: Any, batch: dict[str, Any]) -> Any:
    log_probability = torch.log_softmax(logits, -1)
    entropy = -(log_probability.exp() * log_probability).sum(-1).mean()
    ratio = (log_probability.gather(1, batch["action"])[:, 0] - batch["log_probability"]).exp()
    clipped = ratio.clamp(1 - TASK.clip_range, 1 + TASK.clip_range)
    policy = -torch.minimum(ratio * batch["advantage"], clipped * batch["advantage"]).mean()
    value = (values[:, 0] - batch["return"]).square().mean()
    return policy + TASK.value_coefficient * value - TASK.entropy_coefficient * entropy


def fastest(call: Callable[[], object], count: int) -> float:
    """Seconds of the fastest of `count` calls."""
    times: list[float] = []
    for _ in range(WARM + count):
        began = perf_counter()
        call()
        times.append(perf_counter() - began)
    return min(times[WARM:])


def keep_memory() -> None:
    """Have glibc keep what is freed. Else large tensors are mapped, zeroed page by page, and unmapped at every step."""
    libc = ctypes.CDLL("libc.so.6")
    if not (libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)):
        raise OSError("mallopt was refused")


def learn_and_act(recipe: Recipe, precision: str, threads: int, count: int) -> dict[str, float]:
    """Seconds of one minibatch (gather, forward, backward, clipping, Adam) and of one forward pass of 8 frames."""
    if recipe.keeps_memory:
        keep_memory()
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    random, size = np.random.default_rng(0), TASK.batch_size
    layers, forward = network(torch, recipe, precision)
    parameters = list(layers.parameters())
    fused = True if recipe.tuned else None
    adam = torch.optim.Adam(parameters, TASK.learning_rate, eps=TASK.adam_epsilon, fused=fused)
    shape = (TASK.cycle, 84, 84, 4) if recipe.channels_last else (TASK.cycle, 4, 84, 84)
    rollout = random.integers(0, 256, shape, np.uint8)
    batch = {
        "action": torch.from_numpy(random.integers(0, ACTIONS, (size, 1))),
        "log_probability": torch.full((size,), -np.log(ACTIONS)),
        "advantage": torch.randn(size),
        "return": torch.randn(size),
    }

    def images(rows: Any) -> Any:
        taken = torch.from_numpy(rollout[rows])
        return taken.permute(0, 3, 1, 2) if recipe.channels_last else taken

    def losses(frames: Any) -> Any:
        return loss(torch, *forward(frames), batch)

    compute = torch.compile(losses) if recipe.compiled else losses

    def update() -> None:
        adam.zero_grad()
        compute(images(random.permutation(TASK.cycle)[:size])).backward()
        torch.nn.utils.clip_grad_norm_(parameters, TASK.max_grad_norm)
        adam.step()

    @torch.no_grad()
    def act() -> None:
        logits, values = forward(images(slice(0, TASK.num_envs)))
        assert len(logits.numpy()) == len(values.numpy())

    return {"minibatch": fastest(update, count), "acting": fastest(act, 20 * count)}


def emulate(threads: int, seconds: float) -> float:
    """Steps per second of ale-py's own vector of 8 Breakouts, at random."""
    import numpy as np
    from ale_py.vector_env import AtariVectorEnv

    random, count = np.random.default_rng(0), 0
    env: Any = AtariVectorEnv("breakout", TASK.num_envs, num_threads=threads, episodic_life=True, reward_clipping=True)
    env.reset(seed=0)
    began = perf_counter()
    while perf_counter() - began < seconds:
        env.step(random.integers(0, ACTIONS, TASK.num_envs))
        count += TASK.num_envs
    return count / (perf_counter() - began)


def call(*arguments: object, threads: int) -> Any:
    """This script's answer from a fresh process."""
    command = [sys.executable, __file__, "--call", *map(str, arguments), str(threads)]
    done = subprocess.run(command, env=os.environ | settings("cpu", threads), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def answer(kind: str, *arguments: str) -> object:
    if kind == "emulate":
        seconds, threads = arguments
        return emulate(int(threads), float(seconds))
    recipe, precision, count, threads = arguments
    return learn_and_act(RECIPES[recipe], precision, int(threads), int(count))


def main() -> None:
    options = _options()
    if options.call:
        print(json.dumps(answer(*options.call)))
        return
    head = circumstances({"Versions": listing()["packages"]})
    emulated = {threads: call("emulate", options.seconds, threads=threads) for threads in options.threads}
    print(emulated, file=sys.stderr)
    best, rows = max(emulated.values()), []
    for name in options.recipes:
        for precision in options.precisions:
            for threads in options.threads:
                timed = call("learn", name, precision, options.count, threads=threads)
                minibatch, acting = timed["minibatch"], timed["acting"]
                seconds = TASK.updates * minibatch + TASK.rollout_steps * acting + TASK.cycle / best
                rows.append([f"{name}, {precision}", threads, f"{1e3 * minibatch:.1f}", f"{1e3 * acting:.2f}"])
                rows[-1].append(f"{TASK.cycle / seconds:.0f}")
                print(*rows[-1], file=sys.stderr, flush=True)
    grid = table(["recipe", "threads", "minibatch, ms", "acting, ms", "bound, steps/s"], rows)
    recipes = "\n".join(f"- {name}: {RECIPES[name].about}." for name in options.recipes)
    speeds = ", ".join(f"{rate:.0f} with {threads}" for threads, rate in emulated.items())
    intro = f"Emulator (ale-py's vector of {TASK.num_envs}), steps/s by threads: {speeds}; the bounds have the best."
    publish(f"# The floor of PPO on Breakout\n\n{head}\n\n{intro}\n\n{recipes}\n\n{grid}", options.output)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--precisions", nargs="+", default=["float32", "bf16"], choices=["float32", "bf16"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--count", type=int, default=20, help="minibatches, of which the fastest counts")
    parser.add_argument("--seconds", type=float, default=5.0, help="of the emulator")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--call", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
