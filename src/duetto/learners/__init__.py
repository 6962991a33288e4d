"""Learners run an algorithm's updates in PyTorch or JAX. `choose` selects a framework; `build` imports only this one.

base              Learner: counters, schedules, random numbers, state, metrics of losses (logged as learn/*)
policy            acting, also without a framework
torch, torch_adam, cuda_graphs        the learner in PyTorch; its optimizer: clipping, weight decay; CUDA graphs
jax, jax_update, jax_random           the learner in JAX and its optimizers; its compiled update; random numbers
torch_vmap, multi_seed                training several seeds in one program
runtime           settings of the process: CPU threads, the start of JAX and its cache, memory
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
NO_CUDA: dict[str, str] = {
    "torch": "PyTorch finds no CUDA device. Use --device cpu, or install a CUDA build of PyTorch",
    "jax": "JAX finds no CUDA device. Use --device cpu, or pip install 'jax[cuda13]'",
}


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

    If `backend` is "auto", choose the fastest installed one among `possible`. If `device` is "auto", choose a GPU if
    `/dev/nvidia0` exists and a backend can use it. Looking for a GPU may start JAX; `threads` is then the number of
    JAX's CPU threads.
    """
    wanted: Device = device if device != "auto" else "cuda" if Path("/dev/nvidia0").exists() else "cpu"
    candidates: list[Backend] = [backend] if backend != "auto" else _fastest_first(observation, wanted, possible)
    if wanted == "cuda" and "auto" in (backend, device):
        for candidate in candidates:
            if _has_cuda(candidate, threads):
                return candidate, "cuda"
        if device == "auto":
            return choose(observation, backend, "cpu", threads, possible)
    return candidates[0], wanted  # if this backend cannot use CUDA, `build` raises UsageError


def _fastest_first(observation: Space, device: Device, possible: Sequence[Backend]) -> list[Backend]:
    available: list[Backend] = [backend for backend in possible if installed(backend)]
    if not available:
        what = f"Neither {' nor '.join(possible)} is" if len(possible) > 1 else f"Your networks need {possible[0]}, not"
        raise UsageError(f"{what} installed. Install: {', or: '.join(map(install, reversed(possible)))}")
    # With vectors on a CPU, all measured algorithms train faster in JAX (benchmarks/results/speed.md). With images on a
    # CPU, a minibatch of PPO takes 84 ms of CPU time in PyTorch and 320 ms in JAX (AMD Zen 5). On a GPU, TD3 makes 978
    # steps per second in PyTorch and 393 in JAX, PPO on Breakout 2,874 and 1,905 (results/gpu-h100.md, one round).
    fastest = "jax" if device == "cpu" and not is_image(observation) else "torch"
    return sorted(available, key=lambda backend: backend != fastest)


def _has_cuda(backend: Backend, threads: int) -> bool:
    if not installed(backend):
        return False
    if backend == "torch":
        from duetto.learners.torch import has_cuda

        return has_cuda()
    start_jax(threads)  # first, as asking JAX for devices would start it with another number of threads
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

    `threads` is the framework's number of CPU threads; if it is 0, `learners.runtime` chooses one. JAX keeps the number
    with which Duetto started it in this process (`runtime.start_jax`); `Learner.threads` contains this number.

    If `seed` is a sequence, return one learner that trains all these seeds, for `multi_seed.SeedGroup` only.

    Raises:
        UsageError: The framework is not installed, or finds no CUDA device.
    """
    arguments: Any = (algorithm, observation, action, seed, device, precision, threads)
    try:
        if device == "cuda" and installed(backend) and not _has_cuda(backend, threads):
            raise UsageError(
                f"{NO_CUDA[backend]}. To continue a run from a GPU, set `device: cpu` in its config.yaml and add "
                "--accept-changes."
            )
        if backend == "torch":
            from duetto.learners.torch import TorchLearner
            from duetto.learners.torch_vmap import TorchVmapLearner

            return (TorchLearner if isinstance(seed, int) else TorchVmapLearner)(*arguments)
        from duetto.learners.jax import JaxLearner, JaxVmapLearner

        return (JaxLearner if isinstance(seed, int) else JaxVmapLearner)(*arguments)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRA[backend]:
            raise
        message = f"The {backend} backend needs {error.name}, which is not installed. Install: {install(backend)}"
        raise UsageError(message) from error
