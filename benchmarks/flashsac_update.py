"""Time FlashSAC's update in both frameworks and precisions, and compare it with plain PyTorch and with matrix products.

    python benchmarks/flashsac_update.py --output benchmarks/results/flashsac-update.md

Each measurement is a fresh process; `--only` names one of its kinds: products, plain, torch or jax.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from contenders import listing
from report import circumstances, keep, publish, table
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

OBSERVATIONS, ACTIONS, ROWS, ATOMS, BOUND = 17, 6, 512, 101, 5.0  # HalfCheetah, preset flashsac
WARM, MEASURED = 16, 60  # updates
METHOD = """\
FlashSAC's update with its preset on HalfCheetah: an actor with two blocks of 128, two critics with two blocks of 256,
batch 512, the actor at every second update. *Share*: GFLOP/s of the update (matrix products, {gflop:.1f} GFLOP in plain
PyTorch) divided by the GFLOP/s of the faster framework's products of 1024 x 256 and 256 x 1024 matrices in the same
precision: {speeds}. *Plain PyTorch*: the same update with `torch.nn` and `torch.optim.Adam`, not compiled. Medians of
{rounds} rounds of fresh processes, turn about."""


class Net(nn.Module):
    """BN, linear, two residual blocks, RMS norm, linear."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        wide = 4 * width
        self.enter = nn.Sequential(nn.BatchNorm1d(inputs, momentum=0.01), nn.Linear(inputs, width, bias=False))
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(nn.Linear(width, wide, bias=False), nn.BatchNorm1d(wide, momentum=0.01), nn.ReLU()),
                *(nn.Linear(wide, width, bias=False), nn.BatchNorm1d(width, momentum=0.01), nn.ReLU()),
            )
            for _ in range(2)
        )
        self.norm, self.leave = nn.RMSNorm(width), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for block in self.blocks:
            x = x + block(x)
        return self.leave(self.norm(x)).float()

    @torch.no_grad()
    def project(self) -> None:
        """Scale weight rows to norm 1, and the parameters of each norm to norm √width."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.weight.div_(module.weight.norm(dim=1, keepdim=True))
            elif isinstance(module, nn.BatchNorm1d):
                factor = math.sqrt(len(module.weight)) / torch.cat([module.weight, module.bias]).norm()
                module.weight.mul_(factor)
                module.bias.mul_(factor)
        self.norm.weight.mul_(math.sqrt(len(self.norm.weight)) / self.norm.weight.norm())


class Plain:
    """Actor, two critics, their targets and the temperature, as a user of PyTorch would write them for speed.

    The tests' `plain_flashsac.py` computes the same in float64, for comparison by value.
    """

    def __init__(self, precision: str) -> None:
        self.actor = Net(OBSERVATIONS, 128, 2 * ACTIONS)
        self.critics, self.targets = ([Net(OBSERVATIONS + ACTIONS, 256, ATOMS) for _ in range(2)] for _ in range(2))
        self.log_alpha = torch.tensor(math.log(0.01), requires_grad=True)
        self.own = [parameter for net in self.critics for parameter in net.parameters()]
        self.optimizers = [
            torch.optim.Adam(group, 3e-4) for group in (self.actor.parameters(), [self.log_alpha], self.own)
        ]
        self.atoms = torch.linspace(-BOUND, BOUND, ATOMS)
        self.cast: Any = torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext()
        self.count = 0

    def sampled(self, output: Tensor) -> tuple[Tensor, Tensor]:
        mean, rho = output.chunk(2, -1)
        log_std, noise = -10 + 6 * (1 + torch.tanh(rho)), torch.randn_like(mean)
        u = mean + log_std.exp() * noise
        normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        return torch.tanh(u), (normal - 2 * (math.log(2) - u - functional.softplus(-2 * u))).sum(-1)

    def step(self, number: int, loss: Tensor, *nets: Net) -> None:
        self.optimizers[number].zero_grad()
        loss.backward()
        self.optimizers[number].step()
        for net in nets:
            net.project()

    def update(self, s: Tensor, a: Tensor, reward: Tensor, discount: Tensor, s2: Tensor) -> None:
        if self.count % 2 == 0:
            with self.cast:
                action, log_prob = self.sampled(self.actor(torch.cat([s, s2]))[:ROWS])
                for critic in self.critics:
                    critic.eval().requires_grad_(False)
                x = torch.cat([s, action], 1)
                q = torch.stack([(torch.softmax(critic(x), -1) * self.atoms).sum(-1) for critic in self.critics])
                loss = (self.log_alpha.detach().exp() * log_prob - q.min(0).values).mean()
            self.step(0, loss, self.actor)
            self.step(1, self.log_alpha.exp() * (0.478 * ACTIONS - log_prob.detach().mean()))
            for critic in self.critics:
                critic.train().requires_grad_(True)
        with self.cast:
            with torch.no_grad():
                a2, log_prob = self.sampled(self.actor.eval()(s2))
                self.actor.train()
                x = torch.cat([torch.cat([s, a], 1), torch.cat([s2, a2], 1)])
                logits = torch.stack([target(x)[ROWS:] for target in self.targets])
                p = torch.softmax(logits, -1)
                p = p[(p * self.atoms).sum(-1).argmin(0), torch.arange(ROWS)]
                m = self.projection(p, reward, discount, self.log_alpha.exp() * log_prob)
            each = [-(m * torch.log_softmax(critic(x)[:ROWS], -1)).sum(-1) for critic in self.critics]
            loss = torch.stack(each).mean()
        self.step(2, loss, *self.critics)
        with torch.no_grad():
            for target, critic in zip(self.targets, self.critics, strict=True):
                for old, new in zip(target.parameters(), critic.parameters(), strict=True):
                    old.lerp_(new, 0.01)
        self.count += 1

    def projection(self, p: Tensor, reward: Tensor, discount: Tensor, cost: Tensor) -> Tensor:
        y = (reward[:, None] + discount[:, None] * (self.atoms - cost[:, None])).clamp(-BOUND, BOUND)
        position = (y + BOUND) / (2 * BOUND / (ATOMS - 1))
        lower = position.floor().clamp(max=ATOMS - 2)
        upper = position - lower
        m, index = torch.zeros_like(p), lower.long()
        return m.scatter_add_(1, index, p * (1 - upper)).scatter_add_(1, index + 1, p * upper)


def batch() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {"obs": OBSERVATIONS, "action": ACTIONS, "reward": 0, "discount": 0, "next_obs": OBSERVATIONS}
    fields = {name: random.normal(size=(ROWS, size) if size else ROWS) for name, size in shapes.items()}
    fields |= {"action": np.tanh(fields["action"]), "discount": np.full(ROWS, 0.99)}
    return {name: array.astype(np.float32) for name, array in fields.items()}


def updater(kind: Any, precision: Any, threads: int) -> Any:
    """Return a function that makes one update and waits for it."""
    if kind == "plain":
        torch.set_num_threads(threads)
        plain, tensors = Plain(precision), [torch.from_numpy(array) for array in batch().values()]
        return lambda: plain.update(*tensors)
    from duetto import FlashSAC, learners
    from duetto.algorithms.base import Batch
    from duetto.networks.spaces import Box

    spaces = (
        Box((n,), "float32", (-bound,) * n, (bound,) * n) for n, bound in ((OBSERVATIONS, math.inf), (ACTIONS, 1.0))
    )
    learner = learners.build(kind, FlashSAC(), *spaces, precision=precision, threads=threads)
    fields: Any = batch() | {"weight": np.ones(ROWS, np.float32)}
    given = Batch(**fields)
    return lambda: learner.update(given).value("critic_loss")


def products(precision: str, threads: int) -> float:
    """Return the GFLOP/s at products, of the faster framework."""
    import jax

    torch.set_num_threads(threads)
    random, rates = np.random.default_rng(0), []
    left, right = (random.normal(size=shape).astype(np.float32) for shape in ((1024, 256), (256, 1024)))
    kinds = (torch.bfloat16, jax.numpy.bfloat16) if precision == "bf16" else (torch.float32, jax.numpy.float32)
    a, b = torch.from_numpy(left).to(kinds[0]), torch.from_numpy(right).to(kinds[0])
    c, d = jax.numpy.asarray(left, kinds[1]), jax.numpy.asarray(right, kinds[1])
    product = jax.jit(jax.numpy.matmul)
    for call in (lambda: a @ b, lambda: product(c, d).block_until_ready()):
        rates += [2 * left.size * 1024 / seconds(call, 100) / 1e9 for _ in range(5)]
    return max(rates)


def seconds(call: Any, times: int) -> float:
    started = perf_counter()
    for _ in range(times):
        call()
    return (perf_counter() - started) / times


def measure(kind: str, precision: str, threads: int) -> float:
    """Return GFLOP/s of products, or seconds of an update."""
    if kind == "products":
        return products(precision, threads)
    update = updater(kind, precision, threads)
    seconds(update, WARM)
    return seconds(update, MEASURED)


def gflop() -> float:
    """Return the GFLOP of the products in one plain update, a mean of two."""
    plain, tensors = Plain("float32"), [torch.from_numpy(array) for array in batch().values()]
    with FlopCounterMode(display=False) as counter:
        for _ in range(2):
            plain.update(*tensors)
    return counter.get_total_flops() / 2 / 1e9


def main() -> None:
    """Measure in turns, and publish the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs=2, metavar=("KIND", "PRECISION"), help="print one measurement")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only[0], options.only[1], options.threads)))
        return
    kinds = [(kind, precision) for precision in ("float32", "bf16") for kind in ("products", "jax", "torch", "plain")]
    found: dict[tuple[str, str], list[float]] = {one: [] for one in kinds}
    for _ in range(options.rounds):
        for kind in kinds:
            command = [sys.executable, __file__, "--threads", str(options.threads), "--only", *kind]
            found[kind].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            print(*kind, found[kind][-1], flush=True)
    raw = [[*kind, number + 1, value] for kind, values in found.items() for number, value in enumerate(values)]
    keep(["kind", "precision", "round", "seconds (products: GFLOP/s)"], raw, options.output)
    work, rows, speeds = gflop(), [], []
    names = {"jax": "Duetto, JAX", "torch": "Duetto, PyTorch", "plain": "plain PyTorch"}
    for (kind, precision), values in found.items():
        speed, took = median(found["products", precision]), median(values)
        if kind == "products":
            speeds.append(f"{speed:.0f} ({precision})")
        else:
            share = f"{work / took / speed:.2f}"
            rows.append([f"{names[kind]}, {precision}", f"{1000 * took:.1f}", f"{1 / took:.1f}", share])
    pages = os.environ.get("GLIBC_TUNABLES", "no GLIBC_TUNABLES")
    about = f"{circumstances({'Versions': listing()['packages']})}\n- {options.threads} threads; {pages}"
    head = ["", "ms per update", "updates/s", "share"]
    text = METHOD.format(rounds=options.rounds, gflop=work, speeds=", ".join(speeds))
    publish(f"# FlashSAC's update\n\n{about}\n\n{text}\n\n{table(head, rows)}\n", options.output)


if __name__ == "__main__":
    main()
