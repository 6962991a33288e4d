"""Plain gradient descent of rate .1, so that an algorithm's update can be followed by hand: SPEC O16.

Each class is an `Updater` for networks of one parameter each, and keeps the losses and gradients that it saw.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from duetto.networks import jax as jax_networks
from duetto.networks import torch as torch_networks

RATE = 0.1


def networks(algorithm: Any, spaces: Any, build: Any) -> SimpleNamespace:
    specs = algorithm.networks(*spaces)
    sources = {name: name for name in specs} | algorithm.targets()
    return SimpleNamespace(**{name: build(specs[source], np.random.default_rng(0)) for name, source in sources.items()})


class TorchDescent:
    def __init__(self, algorithm: Any, spaces: Any) -> None:
        self.nets = networks(algorithm, spaces, torch_networks.build)
        self.seen: dict[str, tuple[float, np.ndarray]] = {}
        self.array = torch.from_numpy

    def minimize(self, name: str, loss: Any, *args: Any) -> None:
        parameter = self._parameter(name)
        value, _ = loss(self.nets, *args)
        (gradient,) = torch.autograd.grad(value, parameter)
        self.seen[name] = (value.item(), gradient.numpy().ravel())
        parameter.data -= RATE * gradient

    def track(self, target: str, source: str, tau: float) -> None:
        old, new = self._parameter(target), self._parameter(source)
        old.data = tau * new.data + (1 - tau) * old.data

    def values(self, name: str) -> np.ndarray:
        return self._parameter(name).detach().numpy().ravel()

    def _parameter(self, name: str) -> Any:
        (parameter,) = getattr(self.nets, name).values.values()
        return parameter


class JaxDescent:
    def __init__(self, algorithm: Any, spaces: Any) -> None:
        self.nets = networks(algorithm, spaces, jax_networks.build)
        self.arrays = {name: net.arrays for name, net in vars(self.nets).items()}
        self.seen: dict[str, tuple[float, np.ndarray]] = {}
        self.array = jnp.asarray

    def minimize(self, name: str, loss: Any, *args: Any) -> None:
        def of(arrays: Any) -> Any:
            every = self.arrays | {name: arrays}
            return loss(SimpleNamespace(**{n: getattr(self.nets, n).with_arrays(a) for n, a in every.items()}), *args)

        (value, _), (gradient,) = jax.value_and_grad(of, has_aux=True)(self.arrays[name])
        self.seen[name] = (float(value), np.ravel(gradient))
        self.arrays[name] = [self.arrays[name][0] - RATE * gradient]

    def track(self, target: str, source: str, tau: float) -> None:
        self.arrays[target] = [tau * self.arrays[source][0] + (1 - tau) * self.arrays[target][0]]

    def values(self, name: str) -> np.ndarray:
        return np.ravel(self.arrays[name][0])


DESCENTS = {"torch": TorchDescent, "jax": JaxDescent}
