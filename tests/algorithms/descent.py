"""Updaters with plain gradient descent (learning rate 0.1), to verify an update by hand: SPEC O16.

`seen[network]` is the network's last loss and its gradient, with all arrays flattened and concatenated.
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
        self._built = networks(algorithm, spaces, torch_networks.build)
        arrays = {name: net.values["value"] for name, net in vars(self._built).items() if list(net.values) == ["value"]}
        self.nets = SimpleNamespace(**vars(self._built) | arrays)  # losses see a `Parameter` as its array
        self.seen: dict[str, tuple[float, np.ndarray]] = {}
        self.array = torch.from_numpy

    def minimize(self, name: str, loss: Any, *args: Any) -> Any:
        parameters = self._parameters(name)
        value, info = loss(self.nets, *args)
        gradients = torch.autograd.grad(value, parameters)
        self.seen[name] = (value.item(), _flat(gradients))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.data -= RATE * gradient
        return {key: part.detach() for key, part in info.items()}

    def track(self, target: str, source: str, tau: float) -> None:
        for old, new in zip(self._parameters(target), self._parameters(source), strict=True):
            old.data = tau * new.data + (1 - tau) * old.data

    def values(self, name: str) -> np.ndarray:
        return _flat([parameter.detach() for parameter in self._parameters(name)])

    def _parameters(self, name: str) -> list[Any]:
        return list(getattr(self._built, name).values.values())


class JaxDescent:
    def __init__(self, algorithm: Any, spaces: Any) -> None:
        self.nets = networks(algorithm, spaces, jax_networks.build)
        self.arrays = {name: net.arrays for name, net in vars(self.nets).items()}
        self.seen: dict[str, tuple[float, np.ndarray]] = {}
        self.array = jnp.asarray

    def minimize(self, name: str, loss: Any, *args: Any) -> Any:
        def loss_of(arrays: Any) -> Any:
            every = self.arrays | {name: arrays}
            return loss(SimpleNamespace(**{n: getattr(self.nets, n).with_arrays(a) for n, a in every.items()}), *args)

        (value, info), gradients = jax.value_and_grad(loss_of, has_aux=True)(self.arrays[name])
        self.seen[name] = (float(value), _flat(gradients))
        self.arrays[name] = [old - RATE * g for old, g in zip(self.arrays[name], gradients, strict=True)]
        return info

    def track(self, target: str, source: str, tau: float) -> None:
        pairs = zip(self.arrays[target], self.arrays[source], strict=True)
        self.arrays[target] = [tau * new + (1 - tau) * old for old, new in pairs]

    def values(self, name: str) -> np.ndarray:
        return _flat(self.arrays[name])


def _flat(arrays: Any) -> np.ndarray:
    return np.concatenate([np.ravel(array) for array in arrays])


DESCENTS = {"torch": TorchDescent, "jax": JaxDescent}
