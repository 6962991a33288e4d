"""Learners run an algorithm's updates in PyTorch or JAX. `choose` selects the framework, and `build` imports only that.

base              Learner: counters, schedules, random numbers, state, metrics of losses (learn/*)
policy            acting, also without a framework
torch, torch_adam, cuda_graphs                                             the learner in PyTorch
jax, jax_update, jax_random                                                the learner in JAX
torch_vmap, multi_seed                                                     several seeds in one program
runtime           threads, the start of JAX and its cache, freed memory
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from duetto.algorithms.base import Algorithm
from duetto.errors import UsageError
from duetto.install_hint import install
from duetto.learners.base import Learner, Metrics, Precision
from duetto.learners.policy import Policy, check_parameters
from duetto.learners.runtime import jax_has_cuda, start_jax
from duetto.networks.preprocessing import is_image
from duetto.networks.spaces import Space

__all__ = [
    "BACKENDS",
    "Backend",
    "Learner",
    "Metrics",
    "Policy",
    "Precision",
    "build",
    "check_parameters",
    "choose",
    "installed",
]

Backend = Literal["torch", "jax"]
Device = Literal["cpu", "cuda"]
BACKENDS: tuple[Backend, ...] = ("torch", "jax")
EXTRA: dict[str, tuple[str, ...]] = {"torch": ("torch",), "jax": ("jax", "jaxlib", "optax")}


def installed(backend: Backend) -> bool:
    """Return whether every package of the backend is installed, without importing it."""
    return all(find_spec(package) is not None for package in EXTRA[backend])


def choose(
    observation: Space,
    backend: Literal["auto", "torch", "jax"],
    device: Literal["auto", "cpu", "cuda"],
    threads: int = 0,
    possible: Sequence[Backend] = BACKENDS,
) -> tuple[Backend, Device]:
    """Return backend and device for these observations.

    "auto" selects the fastest installed backend among `possible`, and a GPU if it can use one. `threads` is the number
    of JAX's CPU threads: to look for a GPU starts JAX.
    """
    wanted: Device = device if device != "auto" else "cuda" if Path("/dev/nvidia0").exists() else "cpu"
    candidates: list[Backend] = [backend] if backend != "auto" else _fastest_first(observation, wanted, possible)
    if wanted == "cuda" and "auto" in (backend, device):
        for candidate in candidates:
            if _has_cuda(candidate, threads):
                return candidate, "cuda"
        if device == "auto":
            return choose(observation, backend, "cpu", threads, possible)
    return candidates[0], wanted  # which refuses CUDA if there is none


def _fastest_first(observation: Space, device: Device, possible: Sequence[Backend]) -> list[Backend]:
    available: list[Backend] = [backend for backend in possible if installed(backend)]
    if not available:
        what = f"Neither {' nor '.join(possible)} is" if len(possible) > 1 else f"Your networks need {possible[0]}, not"
        raise UsageError(f"{what} installed. Install: {', or: '.join(map(install, reversed(possible)))}")
    # Vectors on a CPU: training steps per second of TD3, DDPG and PPO (benchmarks/results/speed.md), updates of R2D2.
    # Images on a CPU: a minibatch of PPO takes 84 ms of CPU time in PyTorch and 320 in JAX (AMD Zen 5). On a GPU: TD3
    # 978 steps per second and 393, PPO on Breakout 2,874 and 1,905 (results/gpu-h100.md, one round).
    fastest = "jax" if device == "cpu" and not is_image(observation) else "torch"
    return sorted(available, key=lambda backend: backend != fastest)


def _has_cuda(backend: Backend, threads: int) -> bool:
    if not installed(backend):
        return False
    if backend == "torch":
        from duetto.learners.torch import has_cuda

        return has_cuda()
    start_jax(threads)  # with our threads: asking JAX for devices starts it
    return jax_has_cuda()


def build(
    backend: Backend,
    algorithm: Algorithm,
    observation: Space,
    action: Space,
    *,
    seed: int | Sequence[int] = 0,
    device: str = "cpu",
    precision: Precision = "float32",
    threads: int = 0,
) -> Learner:
    """Build a learner with fresh parameters.

    `threads` is the framework's number of CPU threads; 0: see `learners.runtime`. JAX keeps the number with which it
    started in this process (`runtime.start_jax`); see `Learner.threads`.

    For several seeds, it builds the learner with which `multi_seed.SeedGroup` computes.

    Raises:
        UsageError: The framework is not installed.
    """
    own: Any = (algorithm, observation, action, seed, device, precision, threads)
    try:
        if backend == "torch" and isinstance(seed, int):
            from duetto.learners.torch import TorchLearner

            return TorchLearner(*own)
        if backend == "torch":
            from duetto.learners.torch_vmap import TorchVmapLearner

            return TorchVmapLearner(*own)
        if isinstance(seed, int):
            from duetto.learners.jax import JaxLearner

            return JaxLearner(*own)
        from duetto.learners.jax import JaxVmapLearner

        return JaxVmapLearner(*own)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRA[backend]:
            raise
        message = f"The {backend} backend needs {error.name}, which is not installed. Install: {install(backend)}"
        raise UsageError(message) from error
