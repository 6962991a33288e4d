"""Algorithms compute the same on a GPU as on the CPU, and runs resume bit for bit. Skipped without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.learners import Backend
from duetto.learners.torch import TorchLearner
from duetto.testing import conformance

BACKENDS: tuple[Backend, ...] = ("torch", "jax")
pytestmark = pytest.mark.filterwarnings("ignore:RNN module weights")  # pytest removes Duetto's filter


def has_gpu(backend: Backend) -> bool:
    if backend == "torch":
        from duetto.learners.torch import has_cuda
    else:
        from duetto.learners.runtime import jax_has_cuda as has_cuda
    return has_cuda()


@pytest.mark.parametrize("kind", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_algorithm_on_gpu_matches_cpu(backend: Backend, kind: type[Algorithm]):
    if not has_gpu(backend):
        pytest.skip(f"{backend} sees no CUDA device here: nothing was tried on one")
    conformance.check_device(kind, backend, "cuda")


PENDULUM = ("td3", "Pendulum-v1")
RECURRENT = ("r2d2", "MiniGrid-MemoryS7-v0")


@pytest.mark.parametrize("what", [PENDULUM, RECURRENT], ids=lambda what: what[0])
@pytest.mark.parametrize("backend", BACKENDS)
def test_gpu_run_is_identical_in_another_process(backend: Backend, what: tuple[str, str], tmp_path: Path):
    """JAX must not select the fastest kernels by measuring them, because each process would select others."""
    if not has_gpu(backend):
        pytest.skip(f"{backend} sees no CUDA device here: nothing was tried on one")
    shared = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # this process has reserved most GPU memory
    few = ["--steps", "1200", "--learning-starts", "1000", "--evaluate-every", "0"]
    made = []
    for name in ("one", "other"):
        where = ["--backend", backend, "--device", "cuda", "--runs-dir", str(tmp_path), "--name", name]
        subprocess.run([sys.executable, "-m", "duetto", "train", *what, *few, *where], check=True, env=shared)
        made.append((tmp_path / name / "checkpoints" / "step-000000001200" / "state.safetensors").read_bytes())
    assert made[0] == made[1]


def test_check_device_reports_different_results(monkeypatch: pytest.MonkeyPatch):
    made: list[Any] = []
    update_each = TorchLearner.update_each

    def update_with_rounded_rewards(self: TorchLearner, batches: Any, progress: Any) -> Any:
        """Round the second learner's rewards to two decimals."""
        made.extend([self] if self not in made else [])
        if made.index(self) == 1:
            batches = [batch._replace(reward=np.round(np.asarray(batch.reward), 2)) for batch in batches]
        return update_each(self, batches, progress)

    monkeypatch.setattr(TorchLearner, "update_each", update_with_rounded_rewards)
    with pytest.raises(AssertionError, match=r"td3 on .*: they differ by"):
        conformance.check_device(ALGORITHMS["td3"], "torch", "cpu")


def test_check_device_reports_a_resumed_run_that_differs(monkeypatch: pytest.MonkeyPatch):
    """The check compares the CPU with itself, so this test needs no GPU."""
    conformance.check_device(ALGORITHMS["td3"], "torch", "cpu")
    load = TorchLearner.load_state_dict

    def load_without_optimizer(self: TorchLearner, state: dict[str, Any]) -> None:
        load(self, {**state, **{name: value for name, value in self.state_dict().items() if "optim" in name}})

    monkeypatch.setattr(TorchLearner, "load_state_dict", load_without_optimizer)
    with pytest.raises(AssertionError, match="differs in a resumed run"):
        conformance.check_device(ALGORITHMS["td3"], "torch", "cpu")
