"""Distributions over actions, written once over arrays of either framework or NumPy.

`sample` turns noise into an action; `networks.heads.sampling_noise` draws it on the host. Distributions are
tuples of arrays, so both frameworks can trace them. Leading axes are written (...).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from duetto.functional.array_ops import check_same_shape
from duetto.functional.categorical import log_probabilities
from duetto.functional.q_values import FORBIDDEN, mask_actions, value_of_action

Array = Any


class Categorical(NamedTuple):
    """Distribution of one choice among n, given by `logits` (..., n): π(a) = softmax(logits)(a)."""

    logits: Array  # (..., n)

    @property
    def log_probs(self) -> Array:
        """Logarithms of the probabilities, (..., n), without overflow."""
        return log_probabilities(self.logits)

    def with_mask(self, mask: Array) -> Categorical:
        """Return the distribution over allowed choices, True in `mask` (..., n); the others have probability 0."""
        return Categorical(mask_actions(self.logits, mask))

    @property
    def max_entropy(self) -> Array:
        """Return the logarithm of the number of allowed choices, (...): the entropy of the uniform distribution."""
        xp = array_namespace(self.logits)
        return xp.log(xp.sum(xp.astype(self.logits > 0.5 * FORBIDDEN, self.logits.dtype), axis=-1))

    def mode(self) -> Array:
        """Return the most probable choice, (...)."""
        return array_namespace(self.logits).argmax(self.logits, axis=-1)

    def sample(self, noise: Array) -> Array:
        """Return a choice (...), from standard Gumbel noise (..., n): argmax(logits + noise) (Gumbel, 1954)."""
        check_same_shape(logits=self.logits, noise=noise)
        return array_namespace(self.logits).argmax(self.logits + noise, axis=-1)

    def log_prob(self, action: Array) -> Array:
        """log π(a), (...), of choices (...)."""
        return value_of_action(self.log_probs, action)

    def entropy(self) -> Array:
        """Entropy -Σ π log π, (...)."""
        xp = array_namespace(self.logits)
        log_probs = self.log_probs
        return -xp.sum(xp.exp(log_probs) * log_probs, axis=-1)


class DiagonalGaussian(NamedTuple):
    """Distribution of independent normal numbers with `mean` and `log_std` (..., A)."""

    mean: Array  # (..., A)
    log_std: Array  # (..., A)

    def mode(self) -> Array:
        """The mean, (..., A)."""
        return self.mean

    def sample(self, noise: Array) -> Array:
        """mean + std · noise (..., A), for standard normal noise (..., A)."""
        check_same_shape(mean=self.mean, noise=noise)
        return self.mean + array_namespace(self.mean).exp(self.log_std) * noise

    def log_prob(self, action: Array) -> Array:
        """Log-density, (...), of actions (..., A)."""
        check_same_shape(mean=self.mean, action=action)
        return self.log_density((action - self.mean) * array_namespace(self.mean).exp(-self.log_std))

    def log_density(self, noise: Array) -> Array:
        """Log-density, (...), of the samples from this noise (..., A): exact also for a small std."""
        return array_namespace(noise).sum(-0.5 * noise**2 - self.log_std - 0.5 * math.log(2 * math.pi), axis=-1)

    def entropy(self) -> Array:
        """Differential entropy, (...)."""
        return array_namespace(self.log_std).sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


class Joint(NamedTuple):
    """Distribution of independent `parts`, of MultiDiscrete, Dict and Tuple actions: log π and entropy are their sums.

    An action is (..., columns): one column for each choice and each number, integers if there are only choices.
    """

    parts: tuple[Categorical | DiagonalGaussian, ...]

    def with_mask(self, mask: Array) -> Joint:
        """Return the distribution over allowed actions; `mask` concatenates those of the choices."""
        sizes = [part.logits.shape[-1] if isinstance(part, Categorical) else 0 for part in self.parts]
        masked = zip(self.parts, _split(mask, sizes), strict=True)
        return Joint(tuple(p.with_mask(rows) if isinstance(p, Categorical) else p for p, rows in masked))

    def mode(self) -> Array:
        """Each part's mode, (..., columns)."""
        return self._concat([part.mode() for part in self.parts])

    def sample(self, noise: Array) -> Array:
        """A sample of each part, (..., columns), from their concatenated noise."""
        each = zip(self.parts, _split(noise, [part[0].shape[-1] for part in self.parts]), strict=True)
        return self._concat([part.sample(rows) for part, rows in each])

    def log_prob(self, action: Array) -> Array:
        """log π(a), (...), of actions (..., columns)."""
        sizes = [1 if isinstance(part, Categorical) else part.mean.shape[-1] for part in self.parts]
        each = zip(self.parts, _split(action, sizes), strict=True)
        xp = array_namespace(action)
        return sum(
            part.log_prob(xp.astype(columns[..., 0], xp.int32) if isinstance(part, Categorical) else columns)
            for part, columns in each
        )

    def entropy(self) -> Array:
        """Sum of the parts' entropies, (...)."""
        return sum(part.entropy() for part in self.parts)

    def _concat(self, actions: list[Array]) -> Array:
        xp = array_namespace(actions[0])
        if all(isinstance(part, Categorical) for part in self.parts):
            return xp.stack(actions, axis=-1)
        each = zip(actions, self.parts, strict=True)
        columns = [action[..., None] if isinstance(part, Categorical) else action for action, part in each]
        return xp.concat([xp.astype(part, xp.float32) for part in columns], axis=-1)


class SquashedGaussian(NamedTuple):
    """Distribution of the tanh of independent normal numbers: actions in (-1, 1).

    Haarnoja et al., 2018, arXiv:1801.01290, appendix C.
    """

    mean: Array  # (..., A), before tanh
    log_std: Array  # (..., A), before tanh

    def mode(self) -> Array:
        """tanh of the mean, (..., A)."""
        return array_namespace(self.mean).tanh(self.mean)

    def sample(self, noise: Array) -> Array:
        """tanh(mean + std · noise) (..., A), for standard normal noise (..., A)."""
        return array_namespace(self.mean).tanh(DiagonalGaussian(*self).sample(noise))

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """Actions (..., A) and their log-densities (...), computed before tanh: exact also near ±1.

        Σ log(1 - tanh² u) is 2 (log 2 - u - softplus(-2 u)), which stays finite.
        """
        gaussian = DiagonalGaussian(*self)
        before = gaussian.sample(noise)
        xp = array_namespace(before)
        softplus = xp.logaddexp(xp.zeros_like(before), -2.0 * before)
        log_slope = xp.sum(2.0 * (math.log(2.0) - before - softplus), axis=-1)
        return xp.tanh(before), gaussian.log_density(noise) - log_slope

    def log_prob(self, action: Array) -> Array:
        """Log-density, (...), of actions (..., A) in (-1, 1); inexact near ±1, where tanh rounds."""
        xp, limit = array_namespace(action), 1.0 - 1e-6
        noise = (xp.atanh(xp.clip(action, -limit, limit)) - self.mean) * xp.exp(-self.log_std)
        return self.sample_and_log_prob(noise)[1]


Distribution = Categorical | DiagonalGaussian | SquashedGaussian | Joint


def split_bounds(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """Return (start, end) of each part of a vector: [2, 3] -> [(0, 2), (2, 5)]."""
    ends = list(accumulate(sizes))
    return list(zip([0, *ends], ends, strict=False))


def _split(rows: Array, sizes: Iterable[int]) -> list[Array]:
    """Split (..., Σ sizes) into (..., size) each."""
    return [rows[..., low:high] for low, high in split_bounds(sizes)]
