"""Distributions over actions, written once over arrays of either framework or NumPy.

`sample` turns random numbers into an action; they are drawn on the host (`networks.policies.noise`). All are tuples of
arrays, so both frameworks' tracers pass through them. Leading axes are written (...).
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from duetto.functional.checks import same_shape

Array = Any


class Categorical(NamedTuple):
    """One choice among n."""

    logits: Array  # (..., n)

    @property
    def log_probs(self) -> Array:
        """Logarithms of the probabilities, (..., n); no logit overflows."""
        xp = array_namespace(self.logits)
        shifted = self.logits - xp.max(self.logits, axis=-1, keepdims=True)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))

    def mode(self) -> Array:
        """The likeliest choice, (...)."""
        return array_namespace(self.logits).argmax(self.logits, axis=-1)

    def sample(self, noise: Array) -> Array:
        """A choice (...), from standard Gumbel numbers (..., n): argmax(logits + noise) (Gumbel, 1954)."""
        same_shape(logits=self.logits, noise=noise)
        return array_namespace(self.logits).argmax(self.logits + noise, axis=-1)

    def log_prob(self, action: Array) -> Array:
        """log π(a) of choices (...), (...)."""
        xp = array_namespace(self.logits)
        choices = xp.reshape(xp.arange(self.logits.shape[-1], device=device(action)), (*(1,) * action.ndim, -1))
        return xp.sum(xp.where(action[..., None] == choices, self.log_probs, 0.0), axis=-1)

    def entropy(self) -> Array:
        """-Σ π log π, (...)."""
        xp = array_namespace(self.logits)
        log_probs = self.log_probs
        return -xp.sum(xp.exp(log_probs) * log_probs, axis=-1)


class MultiCategorical(NamedTuple):
    """Several independent choices, a MultiDiscrete action."""

    parts: tuple[Categorical, ...]

    def mode(self) -> Array:
        """The likeliest choices, (..., parts)."""
        xp = array_namespace(self.parts[0].logits)
        return xp.stack([part.mode() for part in self.parts], axis=-1)

    def sample(self, noise: Array) -> Array:
        """Choices (..., parts) from standard Gumbel numbers (..., Σ n), those of the parts side by side."""
        xp = array_namespace(noise)
        ends = cuts([part.logits.shape[-1] for part in self.parts])
        drawn = [part.sample(noise[..., low:high]) for part, (low, high) in zip(self.parts, ends, strict=True)]
        return xp.stack(drawn, axis=-1)

    def log_prob(self, action: Array) -> Array:
        """log π(a) of choices (..., parts), (...): the sum over the parts."""
        return sum(part.log_prob(action[..., i]) for i, part in enumerate(self.parts))

    def entropy(self) -> Array:
        """Sum of the parts' entropies, (...)."""
        return sum(part.entropy() for part in self.parts)


class DiagonalGaussian(NamedTuple):
    """Independent normal numbers."""

    mean: Array  # (..., A)
    log_std: Array  # (..., A)

    def mode(self) -> Array:
        """The mean, (..., A)."""
        return self.mean

    def sample(self, noise: Array) -> Array:
        """mean + std · noise (..., A), of standard normal numbers."""
        same_shape(mean=self.mean, noise=noise)
        return self.mean + array_namespace(self.mean).exp(self.log_std) * noise

    def log_prob(self, action: Array) -> Array:
        """Log-density of actions (..., A), (...)."""
        same_shape(mean=self.mean, action=action)
        xp = array_namespace(self.mean)
        standard = (action - self.mean) * xp.exp(-self.log_std)
        return xp.sum(-0.5 * standard**2 - self.log_std - 0.5 * math.log(2 * math.pi), axis=-1)

    def entropy(self) -> Array:
        """Differential entropy, (...)."""
        return array_namespace(self.log_std).sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


Distribution = Categorical | MultiCategorical | DiagonalGaussian


def cuts(sizes: Any) -> list[tuple[int, int]]:
    """(start, end) of each part of a vector: [2, 3] -> [(0, 2), (2, 5)]."""
    ends = list(accumulate(sizes))
    return list(zip([0, *ends], ends, strict=False))
