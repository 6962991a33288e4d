"""Hidden layers of FlashSAC and XQC: normalized in every layer, for losses that call networks with `train`.

    FlashStack   x ← W norm(x);  for each block  x ← x + σ(norm(W₂ σ(norm(W₁ x))));  rms_norm(x) → W x + b
    XqcStack     x ← norm(x);    for each layer  x ← σ(norm(W x));                       W x + b

`norm` is batch normalization, σ the activation, ReLU in the sources. The layer W₁ is 4 times as wide as x. Hidden
layers have no biases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

from typing_extensions import override

from duetto.errors import UsageError
from duetto.networks.layers import EXPANSION, Array, Stack, StackArrays, join


@dataclass(frozen=True)
class FlashStack(Stack):
    """Residual blocks with batch normalization, and an RMS normalization at the end (FlashSAC, arXiv:2604.04539).

    `hidden` has one size for each block, all equal.
    """

    biases: ClassVar[bool] = False
    epsilon: ClassVar[float] = 1e-5
    unbiased: ClassVar[bool] = True
    unit_norms: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_joins(self)
        if len(set(self.hidden)) != 1:
            raise UsageError(
                f"With network flash all hidden layers have one size; hidden is {self.hidden}. Give one size, once "
                "for each block: --hidden 128 128."
            )

    @cached_property
    @override
    def layers(self) -> list[tuple[int, int]]:
        width = self.hidden[0]
        blocks = [(width, EXPANSION * width), (EXPANSION * width, width)] * len(self.hidden)
        return [(self.inputs + self.joined, width), *blocks, *([(width, self.outputs)] if self.outputs else [])]

    @property
    @override
    def over_batches(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return True

    @cached_property
    @override
    def norms(self) -> list[int]:
        """One for each layer's input or output, the last one by the root mean square."""
        width = self.hidden[0]
        return [self.inputs + self.joined, *[EXPANSION * width, width] * len(self.hidden), width]

    @property
    @override
    def root_mean_squares(self) -> frozenset[int]:
        return frozenset({len(self.norms) - 1})

    @override
    def forward(self, arrays: StackArrays, x: Array, joined: Array | None = None) -> Array:
        x = arrays.linear(0, arrays.batch_norm(0, join(x, joined)))
        for block in range(len(self.hidden)):
            i = 1 + 2 * block
            inside = arrays.activation(arrays.batch_norm(i, arrays.linear(i, x)))
            x = x + arrays.activation(arrays.batch_norm(i + 1, arrays.linear(i + 1, inside)))
        last = len(self.norms) - 1
        x = arrays.rms_norm(last, x)
        return arrays.output(last, x) if self.outputs else x


@dataclass(frozen=True)
class XqcStack(Stack):
    """Plain layers, each batch-normalized before its activation (Palenicek et al., 2025, XQC, arXiv:2509.25174)."""

    biases: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_joins(self)

    @cached_property
    @override
    def layers(self) -> list[tuple[int, int]]:
        sizes = [self.inputs + self.joined, *self.hidden, *([self.outputs] if self.outputs else [])]
        return list(pairwise(sizes))

    @property
    @override
    def over_batches(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return True

    @cached_property
    @override
    def norms(self) -> list[int]:
        """One for the input, and one for each hidden layer."""
        return [self.inputs + self.joined, *self.hidden]

    @override
    def forward(self, arrays: StackArrays, x: Array, joined: Array | None = None) -> Array:
        x = arrays.batch_norm(0, join(x, joined))
        for i in range(len(self.hidden)):
            x = arrays.activation(arrays.batch_norm(i + 1, arrays.linear(i, x)))
        return arrays.output(len(self.hidden), x) if self.outputs else x


def _check_joins(stack: Stack) -> None:
    if stack.joins:
        raise UsageError(f"critic_action_layer is {stack.joins}; with batch normalization it must be 0.")
