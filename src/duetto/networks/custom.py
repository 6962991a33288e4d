"""What a user's own network gives, as the heads that it stands in for give it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from duetto.networks.network import squashed
from duetto.networks.policies import distribution
from duetto.networks.specs import Network, Policy, SquashedGaussian


def interpreted(spec: Network, given: Any) -> Any:
    """A policy's numbers as the distribution that they stand for; everything else as it is."""
    outputs = given if isinstance(spec.head, tuple) else (given,)
    found = tuple(_interpreted(head, output) for head, output in zip(spec.heads, outputs, strict=True))
    return found if isinstance(spec.head, tuple) else found[0]


def _interpreted(head: Any, output: Any) -> Any:
    match head:
        case Policy():
            return distribution(head.space, output)
        case SquashedGaussian():
            return squashed(output, head.log_std)
    return output


def ensemble(stack: Callable[[list[Any]], Any], members: Sequence[Any], *inputs: Any) -> Any:
    """Every member's value, (members, B)."""
    return stack([member(*inputs) for member in members])
