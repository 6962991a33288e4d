"""Which backend and device "auto" means, and the measurements that it goes by."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from duetto.errors import UsageError
from duetto.extras import install
from duetto.networks.encoding import is_image
from duetto.networks.spaces import Space

Backend = Literal["torch", "jax"]
Device = Literal["cpu", "cuda"]
BACKENDS: tuple[Backend, ...] = ("torch", "jax")
EXTRA: dict[str, tuple[str, ...]] = {"torch": ("torch",), "jax": ("jax", "jaxlib", "equinox", "optax")}

# Vectors on a CPU: training steps per second of TD3, DDPG and PPO, benchmarks/results/speed*.md, and
# updates of R2D2 and R2D3, results/recurrent.md. Images on a CPU: a
# minibatch of PPO takes 84 ms of CPU time in PyTorch and 320 in JAX (AMD Zen 5). On a GPU: TD3 978 steps per second and
# 393, PPO on Breakout 2,874 and 1,905 (results/gpu-h100.md, one round).
FASTEST: dict[tuple[Device, str], Backend] = {
    ("cpu", "vector"): "jax",
    ("cpu", "image"): "torch",
    ("cuda", "vector"): "torch",
    ("cuda", "image"): "torch",
}


def installed(backend: Backend) -> bool:
    """Whether every package of the backend can be imported (none is imported to find out)."""
    return all(find_spec(package) is not None for package in EXTRA[backend])


def choose(
    observation: Space,
    backend: Literal["auto", "torch", "jax"],
    device: Literal["auto", "cpu", "cuda"],
    ranks: int = 1,
    threads: int = 0,
    possible: Sequence[Backend] = BACKENDS,
) -> tuple[Backend, Device]:
    """Backend and device for these observations: what is asked for, else the fastest of what is there and
    `possible`; for a GPU, of those that see it.

    `ranks` are the learners that a batch will be dealt to, and `threads` those that JAX will compute with on the CPU.
    """
    wanted: Device = device if device != "auto" else "cuda" if Path("/dev/nvidia0").exists() else "cpu"
    chosen = backend if backend != "auto" else _fastest(observation, wanted, possible)
    if wanted == "cpu" or "auto" not in (backend, device):
        return chosen, wanted
    asked: list[Backend] = [chosen, *(other for other in possible if backend == "auto" and other != chosen)]
    for one in asked:
        if _has_cuda(one, ranks, threads):
            return one, "cuda"
    if device == "cuda":
        return chosen, "cuda"  # which refuses
    return backend if backend != "auto" else _fastest(observation, "cpu", possible), "cpu"


def _fastest(observation: Space, device: Device, possible: Sequence[Backend]) -> Backend:
    available: list[Backend] = [backend for backend in possible if installed(backend)]
    if not available and len(possible) == 1:
        raise UsageError(
            f"Your own networks are for {possible[0]} alone, which is not installed. Install: {install(possible[0])}"
        )
    if not available:
        raise UsageError(f"Neither PyTorch nor JAX is installed. Install: {install('jax')}, or: {install('torch')}")
    fastest = FASTEST[device, "image" if is_image(observation) else "vector"]
    return fastest if fastest in available else available[0]


def _has_cuda(backend: Backend, ranks: int, threads: int) -> bool:
    if not installed(backend):
        return False
    if backend == "torch":
        from duetto.learners.torch import has_cuda
    else:
        from duetto.learners.jax_begin import begin, has_cuda

        begin(threads, ranks)  # while there is time: JAX begins with the question
    return has_cuda()
