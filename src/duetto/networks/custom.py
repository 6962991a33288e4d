"""Outputs of a user's own network, in the form that the heads it replaces would give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from duetto.errors import UsageError
from duetto.networks.network import squashed
from duetto.networks.policies import distribution, outputs
from duetto.networks.spaces import Dict
from duetto.networks.specs import Network, Policy, SquashedGaussian, StateValue, Values


def check_made(made: type, arguments: dict[str, Any], keyed: bool = False) -> None:
    """Raise UsageError where a class of the user's own cannot be constructed from the arguments it will get."""
    if keyed and "key" in arguments:
        raise UsageError("arguments has a 'key', which is JAX's random key here. Call it otherwise.")
    try:
        signature(made).bind(None, None, **arguments, **({"key": None} if keyed else {}))
    except TypeError as error:
        with_key = ", key=key" * keyed
        raise UsageError(
            f"Your network {made.__name__} cannot be made as {made.__name__}(observation_space, action_size{with_key}, "
            f"**arguments): {error}. Let its __init__ take these; arguments are what CustomNetwork(arguments={{...}}) "
            "has."
        ) from error
    except ValueError:  # it has no signature to look at
        return


def seen(spec: Network, obs: Any) -> Any:
    """The parts of an observation that the module was made for: with hindsight not what was achieved."""
    if not isinstance(spec.observation, Dict):
        return obs
    return {name: obs[name] for name, _ in spec.observation.parts}


def interpreted(spec: Network, given: Any) -> Any:
    """A policy's numbers as the distribution that they stand for; everything else as it is."""
    several = isinstance(spec.head, tuple)
    if several and not (isinstance(given, tuple | list) and len(given) == len(spec.heads)):
        wanted = " and ".join(f"{head.name} {_shape(_width(head))}" for head in spec.heads)
        raise UsageError(f"{_called(spec)} must return {len(spec.heads)} arrays, {wanted}; it returned {_said(given)}.")
    outputs = given if several else (given,)
    for head, output in zip(spec.heads, outputs, strict=True):
        _check(spec, head, output)
    found = tuple(_interpreted(head, output) for head, output in zip(spec.heads, outputs, strict=True))
    return found if isinstance(spec.head, tuple) else found[0]


def _interpreted(head: Any, output: Any) -> Any:
    match head:
        case Policy():
            return distribution(head.space, output)
        case SquashedGaussian():
            return squashed(output, head.log_std)
    return output


def ensemble(spec: Network, stack: Callable[[list[Any]], Any], members: Sequence[Any], *inputs: Any) -> Any:
    """Every member's values, (members, B), or (members, B, actions) of each action."""
    found = [member(*inputs) for member in members]
    for output in found:
        _check(spec, spec.heads[0], output)
    return stack(found)


def _check(spec: Network, head: Any, output: Any) -> None:
    """Raise UsageError where a network of the user's own returns an array of another shape than it must have."""
    width = _width(head)
    shape = tuple(getattr(output, "shape", ())) or None
    if spec.torso.recurrent is None and (shape is None or shape[1:] != (() if width is None else (width,))):
        raise UsageError(f"{_called(spec)} must return {head.name} {_shape(width)}; it returned {_said(output)}.")


def _width(head: Any) -> int | None:
    """How many numbers a head gives for an observation; None for a single one, without an axis of its own."""
    match head:
        case Policy():
            return outputs(head.space)
        case SquashedGaussian():
            return 2 * head.action
        case Values() | StateValue():
            return None
    return head.action


def _shape(width: int | None) -> str:
    return "(B,)" if width is None else f"(B, {width})"


def _called(spec: Network) -> str:
    assert spec.custom is not None
    names = [kind.__name__ for kind in (spec.custom.torch, spec.custom.jax) if kind is not None]
    return f"Your network {' / '.join(dict.fromkeys(names))}"


def _said(given: Any) -> str:
    shape = getattr(given, "shape", None)
    return f"a {type(given).__name__}" if shape is None else f"one of shape {tuple(shape)}"
