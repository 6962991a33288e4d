"""Which backend `--backend auto` takes, and the measurements that it goes by."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from duetto.errors import UsageError
from duetto.networks.encoding import is_image
from duetto.networks.spaces import Space

Backend = Literal["torch", "jax"]
EXTRA: dict[str, tuple[str, ...]] = {"torch": ("torch",), "jax": ("jax", "jaxlib", "equinox", "optax")}

# Updates per second of TD3 (batch 256, 400-300), 2 cores of an AMD EPYC (Zen 5): benchmarks/results/speed.md holds the
# whole table. The image row is a comparison of convolutions alone. Nothing was measured on a GPU yet: the order there
# is the CPU's.
FASTEST: dict[tuple[str, str], Backend] = {
    ("cpu", "vector"): "jax",
    ("cpu", "image"): "torch",
    ("cuda", "vector"): "jax",
    ("cuda", "image"): "torch",
}


def installed(backend: Backend) -> bool:
    """Whether every package of the backend can be imported (none is imported to find out)."""
    return all(find_spec(package) is not None for package in EXTRA[backend])


def choose_backend(observation: Space, device: str) -> Backend:
    """The measured faster one for these observations and device, or the only one installed."""
    available: list[Backend] = [backend for backend in ("torch", "jax") if installed(backend)]
    if not available:
        raise UsageError(
            "Neither PyTorch nor JAX is installed: pip install 'duetto[jax]', or pip install 'duetto[torch]'."
        )
    fastest = FASTEST[device, "image" if is_image(observation) else "vector"]
    return fastest if fastest in available else available[0]
