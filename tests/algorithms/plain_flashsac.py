"""Reference implementation of FlashSAC's update in plain PyTorch, without Duetto's code."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Weights = dict[str, Tensor]
LOW, HIGH, ATOMS = -5.0, 5.0, 101
Z = torch.linspace(LOW, HIGH, ATOMS, dtype=torch.float64)
TAU, RATE, BETA1, BETA2, EPSILON = 0.01, 3e-4, 0.9, 0.999, 1e-8


class Net:
    """BN → W → two blocks x + relu(BN W₂ relu(BN W₁ x)) → RMSNorm → W + b. `arrays` are its parameters by name."""

    def __init__(self, arrays: dict[str, Any]) -> None:
        self.weights: Weights = {
            name: torch.tensor(value, dtype=torch.float64)
            for name, value in arrays.items()
            if not name.endswith(("mean", "variance"))
        }
        self.running: Weights = {
            name: torch.tensor(value, dtype=torch.float64)
            for name, value in arrays.items()
            if name.endswith(("mean", "variance"))
        }
        self.first = {name: torch.zeros_like(value) for name, value in self.weights.items()}
        self.second = {name: torch.zeros_like(value) for name, value in self.weights.items()}
        self.steps = 0

    def __call__(self, x: Tensor, train: bool, seen: Weights | None = None, w: Weights | None = None) -> Tensor:
        """Normalize with batch statistics if `train`; store the new running statistics in `seen`."""
        w = self.weights if w is None else w

        def bn(i: int, x: Tensor) -> Tensor:
            name = f"norm{i}"
            if train:
                mean, variance = x.mean(0), x.var(0, unbiased=False)
                if seen is not None:
                    rows = len(x)
                    seen[f"{name}.mean"] = 0.99 * self.running[f"{name}.mean"] + 0.01 * mean.detach()
                    unbiased = variance.detach() * rows / (rows - 1)
                    seen[f"{name}.variance"] = 0.99 * self.running[f"{name}.variance"] + 0.01 * unbiased
            else:
                mean, variance = self.running[f"{name}.mean"], self.running[f"{name}.variance"]
            return (x - mean) / torch.sqrt(variance + 1e-5) * w[f"{name}.gamma"] + w[f"{name}.beta"]

        x = bn(0, x) @ w["w0"].T
        for k in (1, 3):
            inside = torch.relu(bn(k, x @ w[f"w{k}"].T))
            x = x + torch.relu(bn(k + 1, inside @ w[f"w{k + 1}"].T))
        x = x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6) * w["g"]
        return x @ w["w5"].T + w["b5"]

    def step(self, gradients: Weights, rate: float) -> None:
        """Take an Adam step, then project the weights."""
        self.steps += 1
        for name, g in gradients.items():
            self.first[name] = BETA1 * self.first[name] + (1 - BETA1) * g
            self.second[name] = BETA2 * self.second[name] + (1 - BETA2) * g**2
            m = self.first[name] / (1 - BETA1**self.steps)
            v = self.second[name] / (1 - BETA2**self.steps)
            self.weights[name] = self.weights[name] - rate * m / (torch.sqrt(v) + EPSILON)
        self.project()

    def project(self) -> None:
        """Scale weight rows to norm 1; scale each norm's (scale, shift) pair, and g, to norm √width."""
        w = self.weights
        for i in range(6):
            w[f"w{i}"] = w[f"w{i}"] / torch.clamp(w[f"w{i}"].norm(dim=1, keepdim=True), min=1e-8)
        for i in range(5):
            gamma, beta = w[f"norm{i}.gamma"], w[f"norm{i}.beta"]
            factor = math.sqrt(len(gamma)) / torch.sqrt((gamma**2).sum() + (beta**2).sum() + 1e-8)
            w[f"norm{i}.gamma"], w[f"norm{i}.beta"] = gamma * factor, beta * factor
        w["g"] = w["g"] * math.sqrt(len(w["g"])) / torch.sqrt((w["g"] ** 2).sum() + 1e-8)


def gradients_of(loss: Any, *nets: Net) -> list[Weights]:
    """Return the gradients of loss(*weights) with respect to the weights of each network."""
    leaves = [{name: value.clone().requires_grad_() for name, value in net.weights.items()} for net in nets]
    found = torch.autograd.grad(loss(*leaves), [leaf for each in leaves for leaf in each.values()])
    parts = iter(found)
    return [{name: next(parts) for name in each} for each in leaves]


def sampled(output: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return a tanh-squashed Gaussian sample and its log-density."""
    mean, rho = output.chunk(2, dim=-1)
    log_std = -10 + 6 * (1 + torch.tanh(rho))
    u = mean + torch.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    return torch.tanh(u), (normal - 2 * (math.log(2) - u - functional.softplus(-2 * u))).sum(-1)


def projection(p: Tensor, y: Tensor) -> Tensor:
    """Project p at returns y onto the atoms z: atom i gets Σ_j p_j · max(0, 1 - |y_j - z_i| / Δz)."""
    position = (torch.clamp(y, LOW, HIGH) - LOW) / ((HIGH - LOW) / (ATOMS - 1))
    share = torch.clamp(1 - torch.abs(position[:, :, None] - torch.arange(ATOMS)), min=0)
    return (p[:, :, None] * share).sum(1)


class PlainFlashSAC:
    """Actor, two critics, their targets, and the temperature's logarithm."""

    def __init__(self, actor: Net, critics: list[Net], targets: list[Net], log_alpha: float, actions: int) -> None:
        self.actor, self.critics, self.targets = actor, critics, targets
        self.log_alpha, self.moments, self.steps = log_alpha, [0.0, 0.0], 0
        self.target_entropy = 0.5 * actions * math.log(2 * math.pi * math.e * 0.15**2)
        self.count = 0

    def update(self, batch: dict[str, Tensor], now: Tensor, later: Tensor, updates: int) -> None:
        """Make one update of a run with `updates` updates in total."""
        s, a, s2, size = batch["obs"], batch["action"], batch["next_obs"], len(batch["obs"])
        if self.count % 2 == 0:
            self._update_actor(torch.cat([s, s2]), s, now, size, self._rate(self.count / 2 / updates))
        with torch.no_grad():
            a2, log_prob = sampled(self.actor(s2, train=False), later)
            x = torch.cat([torch.cat([s, a], 1), torch.cat([s2, a2], 1)])
            logits = torch.stack([target(x, train=True)[size:] for target in self.targets])
            p = torch.softmax(logits, -1)
            lower = (p * Z).sum(-1).argmin(0)
            p = p[lower, torch.arange(size)]
            cost = math.exp(self.log_alpha) * log_prob
            y = batch["reward"][:, None] + batch["discount"][:, None] * (Z - cost[:, None])
            m = projection(p, y)
        seen: list[Weights] = [{}, {}]

        def loss(*weights: Weights) -> Tensor:
            each = [
                -(m * torch.log_softmax(critic(x, True, new, w)[:size], -1)).sum(-1)
                for critic, new, w in zip(self.critics, seen, weights, strict=True)
            ]
            return torch.stack(each).mean()

        for critic, gradient, new in zip(self.critics, gradients_of(loss, *self.critics), seen, strict=True):
            critic.step(gradient, self._rate(self.count / updates))
            critic.running |= new
        for target, critic in zip(self.targets, self.critics, strict=True):
            for name, value in target.weights.items():
                target.weights[name] = value + TAU * (critic.weights[name] - value)
        self.count += 1

    def _update_actor(self, both: Tensor, s: Tensor, noise: Tensor, size: int, rate: float) -> None:
        seen: Weights = {}
        entropy = torch.zeros(())

        def loss(weights: Weights) -> Tensor:
            nonlocal entropy
            action, log_prob = sampled(self.actor(both, True, seen, weights)[:size], noise)
            x = torch.cat([s, action], 1)
            q = torch.stack([(torch.softmax(critic(x, train=False), -1) * Z).sum(-1) for critic in self.critics])
            entropy = -log_prob.detach().mean()
            return (math.exp(self.log_alpha) * log_prob - q.min(0).values).mean()

        [gradient] = gradients_of(loss, self.actor)
        self.actor.step(gradient, rate)
        self.actor.running |= seen
        slope = math.exp(self.log_alpha) * (float(entropy) - self.target_entropy)
        self.steps += 1
        self.moments = [
            BETA1 * self.moments[0] + (1 - BETA1) * slope,
            BETA2 * self.moments[1] + (1 - BETA2) * slope**2,
        ]
        m, v = self.moments[0] / (1 - BETA1**self.steps), self.moments[1] / (1 - BETA2**self.steps)
        self.log_alpha -= rate * m / (math.sqrt(v) + EPSILON)

    def _rate(self, progress: float) -> float:
        return RATE * (0.5 + 0.5 * 0.5 * (1 + math.cos(math.pi * progress)))
