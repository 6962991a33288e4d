"""Custom networks: check the user's classes, and convert their outputs to the form that Duetto's heads return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, Literal

from array_api_compat import array_namespace, is_array_api_obj

from duetto.errors import UsageError
from duetto.networks import masks
from duetto.networks.heads import Head
from duetto.networks.spaces import Dict
from duetto.networks.specs import NetworkSpec


def custom_class(spec: NetworkSpec, backend: Literal["torch", "jax"]) -> Callable[..., Any]:
    """Return the user's class for this backend.

    Raises:
        UsageError: There is no class for this backend, or its constructor does not accept the arguments.
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
    return kind


class CustomCalls:
    """Custom modules with the interface of `network.Network`; outputs are cast to float32."""

    spec: NetworkSpec

    def __init__(self, spec: NetworkSpec, modules: Sequence[Callable[..., Any]]) -> None:
        self.spec, self._modules = spec, modules

    def __call__(self, obs: Any, *inputs: Any, train: bool = False) -> Any:
        """Return the outputs; `train` is ignored, because modules handle running statistics themselves."""
        spec, (obs, mask) = self.spec, masks.split_mask(obs)
        returned = [_float32(module(self._select_parts(obs), *inputs)) for module in self._modules]
        if spec.members:
            results = [self._interpret(spec.heads[0], output) for output in returned]
            return spec.mask(array_namespace(*results).stack(results), mask)
        outputs = returned[0] if isinstance(spec.head, tuple) else returned
        if not (isinstance(outputs, tuple | list) and len(outputs) == len(spec.heads)):
            raise self._wrong_output(outputs)
        each = tuple(self._interpret(head, output) for head, output in zip(spec.heads, outputs, strict=True))
        return spec.mask(each if isinstance(spec.head, tuple) else each[0], mask)

    def q1(self, obs: Any, *inputs: Any) -> Any:
        """Return the outputs of an ensemble's first member."""
        return _float32(self._modules[0](self._select_parts(obs), *inputs))

    def _select_parts(self, obs: Any) -> Any:
        """Return the parts of `obs` in the spec's space; with hindsight replay, `obs` also has the achieved goal."""
        if not isinstance(self.spec.observation, Dict):
            return obs
        return {name: obs[name] for name, _ in self.spec.observation.parts}

    def _interpret(self, head: Head, output: Any) -> Any:
        """Return a head's result as `network.Network` does; raise UsageError if the output's shape is wrong."""
        shape = tuple(getattr(output, "shape", ()))
        if not shape or shape[1:] != head.shape:
            raise self._wrong_output(output)
        return head.interpret(output)

    def _wrong_output(self, output: Any) -> UsageError:
        assert self.spec.custom is not None
        names = " / ".join(kind.__name__ for kind in (self.spec.custom.torch, self.spec.custom.jax) if kind)
        heads = self.spec.heads
        expected = " and ".join(f"{head.name} {('B', *head.shape)}".replace("'", "") for head in heads)
        expected = expected if len(heads) == 1 else f"{len(heads)} arrays, {expected}"
        shape = getattr(output, "shape", None)
        returned = f"a {type(output).__name__}" if shape is None else f"one of shape {tuple(shape)}"
        return UsageError(f"Your network {names} must return {expected}; it returned {returned}.")


def _float32(output: Any) -> Any:
    """Cast every array to float32; leave anything else unchanged, so that later checks report it."""
    if isinstance(output, tuple | list):
        return tuple(_float32(part) for part in output)
    if not is_array_api_obj(output):
        return output
    xp = array_namespace(output)
    return xp.astype(output, xp.float32)
