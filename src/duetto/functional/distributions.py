"""Distributions over actions, written once over arrays of either framework or NumPy.

`sample` turns noise into an action; `action_distributions.sampling_noise` draws it on the host. Distributions are
tuples of arrays, so both frameworks can trace them. Leading axes are written (...).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from duetto.functional.array_ops import check_same_shape
from duetto.functional.q_values import FORBIDDEN, mask_actions

Array = Any


class Categorical(NamedTuple):
    """Distribution of one choice among n, given by `logits` (..., n): π(a) = softmax(logits)(a)."""

    logits: Array  # (..., n)

    @property
    def log_probs(self) -> Array:
        """Logarithms of the probabilities, (..., n), without overflow."""
        xp = array_namespace(self.logits)
        shifted = self.logits - xp.max(self.logits, axis=-1, keepdims=True)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))

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
        xp = array_namespace(self.logits)
        choices = xp.reshape(xp.arange(self.logits.shape[-1], device=device(action)), (*(1,) * action.ndim, -1))
        return xp.sum(xp.where(action[..., None] == choices, self.log_probs, 0.0), axis=-1)

    def entropy(self) -> Array:
        """Entropy -Σ π log π, (...)."""
        xp = array_namespace(self.logits)
        log_probs = self.log_probs
        return -xp.sum(xp.exp(log_probs) * log_probs, axis=-1)


class MultiCategorical(NamedTuple):
    """Distribution of several independent choices, a MultiDiscrete action, with a `Categorical` for each."""

    parts: tuple[Categorical, ...]

    def with_mask(self, mask: Array) -> MultiCategorical:
        """Return the distribution over allowed actions; `mask` (..., Σ n) concatenates those of the parts."""
        return MultiCategorical(tuple(part.with_mask(rows) for part, rows in self._split(mask)))

    def mode(self) -> Array:
        """The most probable choices, (..., parts)."""
        return array_namespace(self.parts[0].logits).stack([part.mode() for part in self.parts], axis=-1)

    def sample(self, noise: Array) -> Array:
        """Choices (..., parts) from standard Gumbel noise (..., Σ n), concatenated over the parts."""
        return array_namespace(noise).stack([part.sample(rows) for part, rows in self._split(noise)], axis=-1)

    def _split(self, rows: Array) -> list[tuple[Categorical, Array]]:
        return list(zip(self.parts, _split(rows, map(_noise_size, self.parts)), strict=True))

    def log_prob(self, action: Array) -> Array:
        """log π(a), (...), of choices (..., parts): the sum over the parts."""
        return sum(part.log_prob(action[..., i]) for i, part in enumerate(self.parts))

    def entropy(self) -> Array:
        """Sum of the parts' entropies, (...)."""
        return sum(part.entropy() for part in self.parts)


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

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """Actions (..., A) and their log-densities (...), computed from the noise: exact also for a small std."""
        return self.sample(noise), self._log_density(noise)

    def log_prob(self, action: Array) -> Array:
        """Log-density, (...), of actions (..., A)."""
        check_same_shape(mean=self.mean, action=action)
        return self._log_density((action - self.mean) * array_namespace(self.mean).exp(-self.log_std))

    def _log_density(self, noise: Array) -> Array:
        return array_namespace(noise).sum(-0.5 * noise**2 - self.log_std - 0.5 * math.log(2 * math.pi), axis=-1)

    def entropy(self) -> Array:
        """Differential entropy, (...)."""
        return array_namespace(self.log_std).sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


class Joint(NamedTuple):
    """Distribution of a Dict or Tuple action with independent `parts`: log π, entropy and KL are sums over them.

    An action is (..., columns) float32, the concatenated numbers and choices of the parts; a choice has one column.
    """

    parts: tuple[Categorical | MultiCategorical | DiagonalGaussian, ...]

    def with_mask(self, mask: Array) -> Joint:
        """Return the distribution over allowed actions; `mask` concatenates those of the discrete parts."""
        sizes = [0 if isinstance(part, DiagonalGaussian) else _noise_size(part) for part in self.parts]
        masked = zip(self.parts, _split(mask, sizes), strict=True)
        return Joint(tuple(p if isinstance(p, DiagonalGaussian) else p.with_mask(rows) for p, rows in masked))

    def mode(self) -> Array:
        """Each part's mode, (..., columns)."""
        return self._concat([part.mode() for part in self.parts])

    def sample(self, noise: Array) -> Array:
        """A sample of each part, (..., columns), from their concatenated noise."""
        each = zip(self.parts, _split(noise, map(_noise_size, self.parts)), strict=True)
        return self._concat([part.sample(rows) for part, rows in each])

    def log_prob(self, action: Array) -> Array:
        """log π(a), (...), of actions (..., columns): the sum over the parts."""
        each = zip(self.parts, _split(action, map(_num_columns, self.parts)), strict=True)
        return sum(part.log_prob(_action_of(columns, part)) for part, columns in each)

    def entropy(self) -> Array:
        """Sum of the parts' entropies, (...)."""
        return sum(part.entropy() for part in self.parts)

    def _concat(self, actions: list[Array]) -> Array:
        xp = array_namespace(actions[0])
        each = zip(actions, self.parts, strict=True)
        columns = [action[..., None] if isinstance(part, Categorical) else action for action, part in each]
        return xp.concat([xp.astype(part, xp.float32) for part in columns], axis=-1)


def _noise_size(part: Categorical | MultiCategorical | DiagonalGaussian) -> int:
    """Return the size of the noise of a sample."""
    match part:
        case Categorical():
            return part.logits.shape[-1]
        case MultiCategorical():
            return sum(map(_noise_size, part.parts))
    return part.mean.shape[-1]


def _num_columns(part: Categorical | MultiCategorical | DiagonalGaussian) -> int:
    """Return the number of columns of a part in an action."""
    match part:
        case Categorical():
            return 1
        case MultiCategorical():
            return len(part.parts)
    return part.mean.shape[-1]


def _action_of(columns: Array, part: Any) -> Array:
    """Return a part's action from its columns: choices as int32, a single one as (...)."""
    if isinstance(part, DiagonalGaussian):
        return columns
    xp = array_namespace(columns)
    return xp.astype(columns[..., 0] if isinstance(part, Categorical) else columns, xp.int32)


class SquashedGaussian(NamedTuple):
    """Distribution of the tanh of independent normal numbers: actions in (-1, 1).

    Haarnoja et al., 2018, arXiv:1801.01290, appendix C.
    """

    mean: Array  # (..., A), before tanh
    log_std: Array  # (..., A), before tanh

    @property
    def unsquashed(self) -> DiagonalGaussian:
        """The distribution before tanh."""
        return DiagonalGaussian(self.mean, self.log_std)

    def mode(self) -> Array:
        """tanh of the mean, (..., A)."""
        return array_namespace(self.mean).tanh(self.mean)

    def sample(self, noise: Array) -> Array:
        """tanh(mean + std · noise) (..., A), for standard normal noise (..., A)."""
        return array_namespace(self.mean).tanh(self.unsquashed.sample(noise))

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """Actions (..., A) and their log-densities (...), computed before tanh: exact also near ±1."""
        before, log_prob = self.unsquashed.sample_and_log_prob(noise)
        return array_namespace(before).tanh(before), log_prob - _log_slope(before)

    def log_prob(self, action: Array) -> Array:
        """Log-density, (...), of actions (..., A) in (-1, 1); inexact near ±1, where tanh rounds."""
        xp = array_namespace(action)
        limit = 1.0 - 1e-6
        before = xp.atanh(xp.clip(action, -limit, limit))
        return self.unsquashed.log_prob(before) - _log_slope(before)


def _log_slope(before: Array) -> Array:
    """Σ log(1 - tanh² u), (...), of u (..., A), as 2 (log 2 - u - softplus(-2 u)), which stays finite."""
    xp = array_namespace(before)
    softplus = xp.logaddexp(xp.zeros_like(before), -2.0 * before)
    return xp.sum(2.0 * (math.log(2.0) - before - softplus), axis=-1)


Distribution = Categorical | MultiCategorical | DiagonalGaussian | SquashedGaussian | Joint


def split_bounds(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """Return (start, end) of each part of a vector: [2, 3] -> [(0, 2), (2, 5)]."""
    ends = list(accumulate(sizes))
    return list(zip([0, *ends], ends, strict=False))


def _split(rows: Array, sizes: Iterable[int]) -> list[Array]:
    """Split (..., Σ sizes) into (..., size) each."""
    return [rows[..., low:high] for low, high in split_bounds(sizes)]
