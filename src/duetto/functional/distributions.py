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
from duetto.functional.values import FORBIDDEN, allowed

Array = Any


class Categorical(NamedTuple):
    """Distribution of one choice among n, given by `logits` (..., n): π(a) = softmax(logits)(a)."""

    logits: Array  # (..., n)

    @property
    def log_probs(self) -> Array:
        """Logarithms of the probabilities, (..., n); no logit overflows."""
        xp = array_namespace(self.logits)
        shifted = self.logits - xp.max(self.logits, axis=-1, keepdims=True)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))

    def among(self, mask: Array) -> Categorical:
        """The distribution over allowed choices alone, True in `mask` (..., n): the others' probability is 0."""
        return Categorical(allowed(self.logits, mask))

    @property
    def greatest_entropy(self) -> Array:
        """Logarithm of the number of allowed choices, (...), which is the entropy if all were alike likely."""
        xp = array_namespace(self.logits)
        return xp.log(xp.sum(xp.astype(self.logits > 0.5 * FORBIDDEN, self.logits.dtype), axis=-1))

    def mode(self) -> Array:
        """The likeliest choice, (...)."""
        return array_namespace(self.logits).argmax(self.logits, axis=-1)

    def sample(self, noise: Array) -> Array:
        """A choice (...), from standard Gumbel numbers (..., n): argmax(logits + noise) (Gumbel, 1954)."""
        same_shape(logits=self.logits, noise=noise)
        return array_namespace(self.logits).argmax(self.logits + noise, axis=-1)

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """A choice and its log π(a), (...) each."""
        action = self.sample(noise)
        return action, self.log_prob(action)

    def kl(self, other: Categorical) -> Array:
        """KL divergence from self to other, Σ π (log π - log π'), (...)."""
        xp = array_namespace(self.logits)
        log_probs = self.log_probs
        return xp.sum(xp.exp(log_probs) * (log_probs - other.log_probs), axis=-1)

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
    """Distribution of several independent choices, a MultiDiscrete action; `parts` has a `Categorical` for each."""

    parts: tuple[Categorical, ...]

    def among(self, mask: Array) -> MultiCategorical:
        """See `Categorical.among`; `mask` (..., Σ n) has those of the parts side by side."""
        ends = cuts([part.logits.shape[-1] for part in self.parts])
        return MultiCategorical(
            tuple(part.among(mask[..., low:high]) for part, (low, high) in zip(self.parts, ends, strict=True))
        )

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

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """Choices (..., parts) and their log π(a), (...)."""
        action = self.sample(noise)
        return action, self.log_prob(action)

    def kl(self, other: MultiCategorical) -> Array:
        """Sum of the parts' KL divergences, (...)."""
        return sum(mine.kl(its) for mine, its in zip(self.parts, other.parts, strict=True))

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
        """mean + std · noise (..., A); `noise` (..., A) holds standard normal numbers."""
        same_shape(mean=self.mean, noise=noise)
        return self.mean + array_namespace(self.mean).exp(self.log_std) * noise

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """Actions (..., A) and their log-densities (...)."""
        action = self.sample(noise)
        return action, self.log_prob(action)

    def kl(self, other: DiagonalGaussian) -> Array:
        """KL divergence from self to other, (...)."""
        xp = array_namespace(self.mean)
        ratio = xp.exp(2.0 * (self.log_std - other.log_std))
        distance = ((self.mean - other.mean) * xp.exp(-other.log_std)) ** 2
        return xp.sum(0.5 * (ratio + distance - 1.0) - self.log_std + other.log_std, axis=-1)

    def log_prob(self, action: Array) -> Array:
        """Log-density, (...), of actions (..., A)."""
        same_shape(mean=self.mean, action=action)
        xp = array_namespace(self.mean)
        standard = (action - self.mean) * xp.exp(-self.log_std)
        return xp.sum(-0.5 * standard**2 - self.log_std - 0.5 * math.log(2 * math.pi), axis=-1)

    def entropy(self) -> Array:
        """Differential entropy, (...)."""
        return array_namespace(self.log_std).sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


class Joint(NamedTuple):
    """Distribution of a Dict or Tuple action with independent `parts`: log π, entropy and KL are sums over them.

    An action is (..., columns) float32, the parts' numbers and choices side by side; a choice has one column.
    """

    parts: tuple[Categorical | MultiCategorical | DiagonalGaussian, ...]

    def among(self, mask: Array) -> Joint:
        """See `Categorical.among`; `mask` has those of the parts with choices side by side."""
        ends = cuts([0 if isinstance(part, DiagonalGaussian) else _inputs(part) for part in self.parts])
        return Joint(
            tuple(
                part if isinstance(part, DiagonalGaussian) else part.among(mask[..., low:high])
                for part, (low, high) in zip(self.parts, ends, strict=True)
            )
        )

    def mode(self) -> Array:
        """Each part's mode, (..., columns)."""
        return _beside([part.mode() for part in self.parts], self.parts)

    def sample(self, noise: Array) -> Array:
        """A sample of each part, (..., columns), from their random numbers side by side."""
        ends = cuts(map(_inputs, self.parts))
        drawn = [part.sample(noise[..., low:high]) for part, (low, high) in zip(self.parts, ends, strict=True)]
        return _beside(drawn, self.parts)

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """An action (..., columns) and its log π(a), (...)."""
        action = self.sample(noise)
        return action, self.log_prob(action)

    def kl(self, other: Joint) -> Array:
        """Sum of the parts' KL divergences, (...)."""
        return sum(mine.kl(its) for mine, its in zip(self.parts, other.parts, strict=True))  # type: ignore[arg-type]

    def log_prob(self, action: Array) -> Array:
        """log π(a), (...), of actions (..., columns): the sum over the parts."""
        ends = cuts(map(_columns, self.parts))
        return sum(
            part.log_prob(_own(action[..., low:high], part)) for part, (low, high) in zip(self.parts, ends, strict=True)
        )

    def entropy(self) -> Array:
        """Sum of the parts' entropies, (...)."""
        return sum(part.entropy() for part in self.parts)


def _inputs(part: Categorical | MultiCategorical | DiagonalGaussian) -> int:
    """Number of random numbers that a sample takes."""
    match part:
        case Categorical():
            return part.logits.shape[-1]
        case MultiCategorical():
            return sum(map(_inputs, part.parts))
    return part.mean.shape[-1]


def _columns(part: Categorical | MultiCategorical | DiagonalGaussian) -> int:
    """Number of columns that a part has in an action."""
    match part:
        case Categorical():
            return 1
        case MultiCategorical():
            return len(part.parts)
    return part.mean.shape[-1]


def _beside(actions: list[Array], parts: Any) -> Array:
    xp = array_namespace(actions[0])
    rows = [
        action[..., None] if isinstance(part, Categorical) else action
        for action, part in zip(actions, parts, strict=True)
    ]
    return xp.concat([xp.astype(row, xp.float32) for row in rows], axis=-1)


def _own(columns: Array, part: Any) -> Array:
    """A part's columns of an action in the form that the part takes: choices as int32, a single one (...)."""
    if isinstance(part, DiagonalGaussian):
        return columns
    xp = array_namespace(columns)
    return xp.astype(columns[..., 0] if isinstance(part, Categorical) else columns, xp.int32)


class SquashedGaussian(NamedTuple):
    """Distribution of independent normal numbers, each through tanh: actions in (-1, 1) (Haarnoja et al., 2018,
    arXiv:1801.01290, appendix C). `mean` and `log_std` (..., A) are those before tanh.
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
        """tanh(mean + std · noise) (..., A); `noise` (..., A) holds standard normal numbers."""
        return array_namespace(self.mean).tanh(self.unsquashed.sample(noise))

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """Actions (..., A) and their log-densities (...), from the numbers before tanh: nothing is lost near ±1."""
        before = self.unsquashed.sample(noise)
        return array_namespace(before).tanh(before), self._log_prob(before)

    def log_prob(self, action: Array) -> Array:
        """Log-density, (...), of actions (..., A) in (-1, 1). Near ±1 the number before tanh is lost to rounding."""
        xp = array_namespace(action)
        limit = 1.0 - 1e-6
        return self._log_prob(xp.atanh(xp.clip(action, -limit, limit)))

    def entropy(self) -> Array:
        """Raise TypeError: there is no closed form; -mean log π(a) of samples estimates it.

        Raises:
            TypeError: Always.
        """
        raise TypeError("A squashed Gaussian's entropy has no closed form. Take -log_prob of samples as an estimate.")

    def kl(self, other: SquashedGaussian) -> Array:
        """KL divergence from self to other, (...): that of the Gaussians, since tanh is one-to-one."""
        return self.unsquashed.kl(other.unsquashed)

    def _log_prob(self, before: Array) -> Array:
        """log N(u) - Σ log(1 - tanh² u), with log(1 - tanh² u) = 2 (log 2 - u - softplus(-2 u))."""
        xp = array_namespace(before)
        softplus = xp.log1p(xp.exp(-2.0 * xp.abs(before))) + xp.where(before < 0, -2.0 * before, 0.0 * before)
        squashing = xp.sum(2.0 * (math.log(2.0) - before - softplus), axis=-1)
        return self.unsquashed.log_prob(before) - squashing


Distribution = Categorical | MultiCategorical | DiagonalGaussian | SquashedGaussian | Joint


def cuts(sizes: Any) -> list[tuple[int, int]]:
    """(start, end) of each part of a vector: [2, 3] -> [(0, 2), (2, 5)]."""
    ends = list(accumulate(sizes))
    return list(zip([0, *ends], ends, strict=False))
