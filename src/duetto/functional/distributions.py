"""Distributions over actions, written once for arrays of PyTorch, JAX and NumPy.

`networks.heads.sampling_noise` draws the noise that `sample` turns into an action. Distributions are tuples of
arrays, so both frameworks can trace them. Leading axes are written (...).
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
    """Distribution over n choices, given by `logits` (..., n): π(a) = softmax(logits)(a)."""

    logits: Array  # (..., n)

    @property
    def log_probs(self) -> Array:
        """Logarithms of the probabilities, (..., n), without overflow."""
        return log_probabilities(self.logits)

    def with_mask(self, mask: Array) -> Categorical:
        """Return the distribution with probability 0 for choices that are False in `mask` (..., n)."""
        return Categorical(mask_actions(self.logits, mask))

    @property
    def max_entropy(self) -> Array:
        """Entropy (...) of the uniform distribution over the allowed choices: the logarithm of their number."""
        xp = array_namespace(self.logits)
        return xp.log(xp.sum(xp.astype(self.logits > 0.5 * FORBIDDEN, self.logits.dtype), axis=-1))

    def mode(self) -> Array:
        """Return the most probable choice, (...)."""
        return array_namespace(self.logits).argmax(self.logits, axis=-1)

    def sample(self, noise: Array) -> Array:
        """Return choices (...): argmax(logits + noise). `noise` (..., n) is standard Gumbel noise (Gumbel, 1954)."""
        check_same_shape(logits=self.logits, noise=noise)
        return array_namespace(self.logits).argmax(self.logits + noise, axis=-1)

    def log_prob(self, action: Array) -> Array:
        """Return the log-probabilities (...) of choices (...)."""
        return value_of_action(self.log_probs, action)

    def entropy(self) -> Array:
        """Return the entropy -Σ π log π, (...)."""
        xp = array_namespace(self.logits)
        log_probs = self.log_probs
        return -xp.sum(xp.exp(log_probs) * log_probs, axis=-1)


class DiagonalGaussian(NamedTuple):
    """Distribution of independent normal numbers with `mean` and `log_std` (..., A)."""

    mean: Array  # (..., A)
    log_std: Array  # (..., A)

    def mode(self) -> Array:
        """Return the mean, (..., A)."""
        return self.mean

    def sample(self, noise: Array) -> Array:
        """Return actions (..., A): mean + std · noise. `noise` (..., A) is standard normal."""
        check_same_shape(mean=self.mean, noise=noise)
        return self.mean + array_namespace(self.mean).exp(self.log_std) * noise

    def log_prob(self, action: Array) -> Array:
        """Return the log-densities (...) of actions (..., A)."""
        check_same_shape(mean=self.mean, action=action)
        return self.log_density((action - self.mean) * array_namespace(self.mean).exp(-self.log_std))

    def log_density(self, noise: Array) -> Array:
        """Return the log-densities (...) of `sample(noise)`, exact even for a small std. `noise` is (..., A)."""
        return array_namespace(noise).sum(-0.5 * noise**2 - self.log_std - 0.5 * math.log(2 * math.pi), axis=-1)

    def entropy(self) -> Array:
        """Return the differential entropy, (...)."""
        return array_namespace(self.log_std).sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


class Joint(NamedTuple):
    """Distribution of MultiDiscrete, Dict and Tuple actions: independent `parts`, whose log π and entropies add up.

    An action is (..., columns): a column for each discrete choice and each continuous number. If all parts are discrete
    choices, it consists of integers.
    """

    parts: tuple[Categorical | DiagonalGaussian, ...]

    def with_mask(self, mask: Array) -> Joint:
        """Return the distribution over allowed actions; `mask` is the concatenation of all choices' masks."""
        sizes = [part.logits.shape[-1] if isinstance(part, Categorical) else 0 for part in self.parts]
        masked = zip(self.parts, _split(mask, sizes), strict=True)
        return Joint(tuple(p.with_mask(rows) if isinstance(p, Categorical) else p for p, rows in masked))

    def mode(self) -> Array:
        """Return each part's mode, (..., columns)."""
        return self._concat([part.mode() for part in self.parts])

    def sample(self, noise: Array) -> Array:
        """Return actions (..., columns) with a sample of each part. `noise` is the concatenated noise of the parts."""
        each = zip(self.parts, _split(noise, [part[0].shape[-1] for part in self.parts]), strict=True)
        return self._concat([part.sample(rows) for part, rows in each])

    def log_prob(self, action: Array) -> Array:
        """Return the log-probabilities (...) of actions (..., columns)."""
        sizes = [1 if isinstance(part, Categorical) else part.mean.shape[-1] for part in self.parts]
        each = zip(self.parts, _split(action, sizes), strict=True)
        xp = array_namespace(action)
        return sum(
            part.log_prob(xp.astype(columns[..., 0], xp.int32) if isinstance(part, Categorical) else columns)
            for part, columns in each
        )

    def entropy(self) -> Array:
        """Return the sum of the parts' entropies, (...)."""
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
        """Return tanh of the mean, (..., A)."""
        return array_namespace(self.mean).tanh(self.mean)

    def sample(self, noise: Array) -> Array:
        """Return actions (..., A): tanh(mean + std · noise). `noise` (..., A) is standard normal."""
        return array_namespace(self.mean).tanh(DiagonalGaussian(*self).sample(noise))

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """Return actions (..., A) and their log-densities (...), exact even near ±1.

        For the value u before tanh, log(1 - tanh² u) is computed as 2 (log 2 - u - softplus(-2 u)), which is finite.
        """
        gaussian = DiagonalGaussian(*self)
        before = gaussian.sample(noise)
        xp = array_namespace(before)
        softplus = xp.logaddexp(xp.zeros_like(before), -2.0 * before)
        log_slope = xp.sum(2.0 * (math.log(2.0) - before - softplus), axis=-1)
        return xp.tanh(before), gaussian.log_density(noise) - log_slope

    def log_prob(self, action: Array) -> Array:
        """Return the log-densities (...) of actions (..., A) in (-1, 1); inexact near ±1, where tanh rounds."""
        xp, limit = array_namespace(action), 1.0 - 1e-6
        noise = (xp.atanh(xp.clip(action, -limit, limit)) - self.mean) * xp.exp(-self.log_std)
        return self.sample_and_log_prob(noise)[1]


Distribution = Categorical | DiagonalGaussian | SquashedGaussian | Joint


def split_bounds(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """Return (start, end) of each part of a vector, for parts of these sizes: [2, 3] -> [(0, 2), (2, 5)]."""
    ends = list(accumulate(sizes))
    return list(zip([0, *ends], ends, strict=False))


def _split(rows: Array, sizes: Iterable[int]) -> list[Array]:
    """Split the last axis of `rows` (..., Σ sizes) into parts of these sizes."""
    return [rows[..., low:high] for low, high in split_bounds(sizes)]
