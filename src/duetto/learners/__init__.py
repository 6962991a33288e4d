"""Learners run an algorithm's updates in PyTorch or JAX; `build` imports only the framework that it needs.

base              Learner: counters, schedules, random numbers, state      policy     acting, also without a framework
torch, torch_adam, cuda_graphs, torch_deterministic                        the learner in PyTorch
jax, jax_update, jax_cache, jax_random                                     the learner in JAX
torch_vmap, jax_vmap, multi_seed                                           several seeds in one program
recurrent_unroll  recurrent networks in losses                             parameters     checks of saved parameters
backends          the choice for "auto"                                    runtime        threads, JAX, freed memory
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duetto.algorithms.base import Algorithm
from duetto.errors import UsageError
from duetto.install_hint import install
from duetto.learners.backends import BACKENDS, EXTRA, Backend, choose
from duetto.learners.base import Learner, Metrics, Precision
from duetto.learners.parameters import check_parameters
from duetto.learners.policy import Policy
from duetto.networks.spaces import Space

__all__ = ["BACKENDS", "Backend", "Learner", "Metrics", "Policy", "Precision", "build", "check_parameters", "choose"]


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
        from duetto.learners.jax_vmap import JaxVmapLearner

        return JaxVmapLearner(*own)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRA[backend]:
            raise
        message = f"The {backend} backend needs {error.name}, which is not installed. Install: {install(backend)}"
        raise UsageError(message) from error
