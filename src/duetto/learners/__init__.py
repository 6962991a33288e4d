"""Learners run an algorithm's update on a framework. `build` imports the one framework that is asked for, no other."""

from __future__ import annotations

from collections.abc import Sequence

from duetto.algorithms.base import Algorithm
from duetto.errors import UsageError
from duetto.extras import install
from duetto.learners.acting import Acting
from duetto.learners.base import Learner, Metrics, Precision
from duetto.learners.choice import BACKENDS, EXTRA, Backend, choose
from duetto.learners.parameters import check_parameters, check_room
from duetto.learners.rank import Making
from duetto.learners.ranks import Machines
from duetto.networks.spaces import Space

__all__ = ["BACKENDS", "Acting", "Backend", "Learner", "Metrics", "Precision", "build", "check_parameters", "choose"]


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
    ranks: int = 1,
    machines: Machines | None = None,
) -> Learner:
    """Build a learner with fresh parameters.

    `threads` are the framework's on a CPU; 0: see `learners.threads`. JAX has those that it began with in this process
    (`jax_begin`); a learner's own `threads` says how many.

    For several seeds it is what `voices.Choir` computes with. Several `ranks` (see `learners.ranks`) have a share of
    every batch each, which `dealing.check` has found to come out even. Ranks are processes on `machines`; where that is
    None, PyTorch's are processes on this machine, and JAX's are devices of this process.

    Raises:
        UsageError: The framework is not installed, or this machine has no memory for such networks.
        DuettoError: One of the ranks cannot begin.
    """
    check_room(algorithm, observation, action)
    try:
        own = (algorithm, observation, action)
        if backend == "torch":
            if not isinstance(seed, int):
                from duetto.learners.torch_many import TorchMany

                return TorchMany(*own, seed, device, precision, threads)
            if ranks > 1:
                from duetto.learners.torch_ranks import TorchRanks

                return TorchRanks(Making(*own, seed, device, precision, threads), ranks, machines)
            from duetto.learners.torch import TorchLearner

            return TorchLearner(*own, seed, device, precision, threads)
        if not isinstance(seed, int):
            from duetto.learners.jax_many import JaxMany

            return JaxMany(*own, seed, device, precision, threads)
        if ranks > 1:
            making = Making(*own, seed, device, precision, threads)
            if machines is not None:
                from duetto.learners.remote import RemoteLearner

                return RemoteLearner(making, ranks, machines)
            from duetto.learners.jax_ranks import JaxRanks

            return JaxRanks(making, ranks)
        from duetto.learners.jax import JaxLearner

        return JaxLearner(*own, seed, device, precision, threads)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRA[backend]:
            raise
        message = f"The {backend} backend needs {error.name}, which is not installed. Install: {install(backend)}"
        raise UsageError(message) from error
