"""Custom networks: how their classes are constructed, and their outputs in the form that Duetto's own heads return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, Literal

from duetto.errors import UsageError
from duetto.networks.action_distributions import distribution, num_outputs
from duetto.networks.network import squashed_gaussian
from duetto.networks.spaces import Dict
from duetto.networks.specs import CriticHead, NetworkSpec, PolicyHead, SquashedGaussianHead, StateValueHead


def custom_class(spec: NetworkSpec, backend: Literal["torch", "jax"]) -> Callable[..., Any]:
    """Return the user's class for this backend.

    Raises:
        UsageError: There is none, or it cannot be constructed from the arguments that it gets.
    """
    assert spec.custom is not None
    kind, arguments = getattr(spec.custom, backend), spec.custom.arguments
    if kind is None:
        other = "jax" if backend == "torch" else "torch"
        raise UsageError(
            f'The network is for {other} only. Give CustomNetwork({backend}=...) or set backend="{other}".'
        )
    try:
        signature(kind).bind(None, None, **arguments, **({"key": None} if backend == "jax" else {}))
    except TypeError as error:
        key = ", key=key" if backend == "jax" else ""
        raise UsageError(
            f"Your network {kind.__name__} cannot be made as {kind.__name__}(observation_space, action_size{key}, "
            f"**arguments): {error}. Change its __init__, or CustomNetwork(arguments={{...}})."
        ) from error
    except ValueError:  # a class without a signature
        pass
    return kind


def select_parts(spec: NetworkSpec, obs: Any) -> Any:
    """Return the parts of an observation in the network's space; with hindsight the achieved goal is not one."""
    if not isinstance(spec.observation, Dict):
        return obs
    return {name: obs[name] for name, _ in spec.observation.parts}


def read_outputs(spec: NetworkSpec, outputs: Any) -> Any:
    """Return a policy's numbers as the distribution over actions, all other outputs unchanged."""
    if not isinstance(spec.head, tuple):
        return _read_output(spec, spec.head, outputs)
    if not (isinstance(outputs, tuple | list) and len(outputs) == len(spec.head)):
        expected = " and ".join(f"{head.name} {_shape(head)}" for head in spec.head)
        raise _wrong_output(spec, f"{len(spec.head)} arrays, {expected}", outputs)
    return tuple(_read_output(spec, head, output) for head, output in zip(spec.head, outputs, strict=True))


def call_ensemble(spec: NetworkSpec, stack: Callable[[list[Any]], Any], members: Sequence[Any], *inputs: Any) -> Any:
    """Return every member's values, (members, B) or (members, B, actions)."""
    return stack([_read_output(spec, spec.heads[0], member(*inputs)) for member in members])


def _read_output(spec: NetworkSpec, head: Any, output: Any) -> Any:
    """Return a head's output as `network.Network` does; raise UsageError if its shape is wrong."""
    shape, width = tuple(getattr(output, "shape", ())), _width(head)
    if spec.recurrent is None and (not shape or shape[1:] != (() if width is None else (width,))):
        raise _wrong_output(spec, f"{head.name} {_shape(head)}", output)
    match head:
        case PolicyHead():
            return distribution(head.space, output)
        case SquashedGaussianHead():
            return squashed_gaussian(output, head.log_std)
    return output


def _width(head: Any) -> int | None:
    """Return how many numbers a head gives for an observation; None for a single one without an axis."""
    match head:
        case PolicyHead():
            return num_outputs(head.space)
        case SquashedGaussianHead():
            return 2 * head.action
        case CriticHead() | StateValueHead():
            return None
    return head.action


def _shape(head: Any) -> str:
    return "(B,)" if (width := _width(head)) is None else f"(B, {width})"


def _wrong_output(spec: NetworkSpec, expected: str, output: Any) -> UsageError:
    assert spec.custom is not None
    names = [kind.__name__ for kind in (spec.custom.torch, spec.custom.jax) if kind is not None]
    shape = getattr(output, "shape", None)
    returned = f"a {type(output).__name__}" if shape is None else f"one of shape {tuple(shape)}"
    network = " / ".join(dict.fromkeys(names))
    return UsageError(f"Your network {network} must return {expected}; it returned {returned}.")
