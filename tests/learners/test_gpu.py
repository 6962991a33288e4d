"""On a GPU each algorithm computes what it does on the processor, and its runs continue bit for bit; else skipped."""

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
pytestmark = pytest.mark.filterwarnings("ignore:RNN module weights")  # pytest forgets Duetto's own filter


def found(backend: Backend) -> bool:
    if backend == "torch":
        from duetto.learners.torch import has_cuda
    else:
        from duetto.learners.runtime import jax_has_cuda as has_cuda
    return has_cuda()


@pytest.mark.parametrize("kind", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_on_a_gpu(backend: Backend, kind: type[Algorithm]):
    if not found(backend):
        pytest.skip(f"{backend} sees no CUDA device here: nothing was tried on one")
    conformance.check_device(kind, backend, "cuda")


PENDULUM = ("td3", "Pendulum-v1")
MEMORY = ("r2d2", "MiniGrid-MemoryS7-v0")


@pytest.mark.parametrize("what", [PENDULUM, MEMORY], ids=lambda what: what[0])
@pytest.mark.parametrize("backend", BACKENDS)
def test_another_process_makes_the_same_run(backend: Backend, what: tuple[str, str], tmp_path: Path):
    """JAX in one process keeps the kernels that it found the fastest; another would find others."""
    if not found(backend):
        pytest.skip(f"{backend} sees no CUDA device here: nothing was tried on one")
    shared = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # this process has most of the GPU's memory
    few = ["--steps", "1200", "--learning-starts", "1000", "--evaluate-every", "0"]
    made = []
    for name in ("one", "other"):
        where = ["--backend", backend, "--device", "cuda", "--runs-dir", str(tmp_path), "--name", name]
        subprocess.run([sys.executable, "-m", "duetto", "train", *what, *few, *where], check=True, env=shared)
        made.append((tmp_path / name / "checkpoints" / "step-000000001200" / "state.safetensors").read_bytes())
    assert made[0] == made[1]


def test_the_check_itself():
    """Where there is none it is tried on the processor, which is like itself."""
    conformance.check_device(ALGORITHMS["td3"], "torch", "cpu")


def test_a_device_that_computes_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch):
    made: list[Any] = []
    update_each = TorchLearner.update_each

    def rough(self: TorchLearner, batches: Any, progress: Any) -> Any:
        """The second one sees rewards with two decimals."""
        made.extend([self] if self not in made else [])
        if made.index(self) == 1:
            batches = [batch._replace(reward=np.round(np.asarray(batch.reward), 2)) for batch in batches]
        return update_each(self, batches, progress)

    monkeypatch.setattr(TorchLearner, "update_each", rough)
    with pytest.raises(AssertionError, match=r"td3 on .*: they differ by"):
        conformance.check_device(ALGORITHMS["td3"], "torch", "cpu")


def test_a_run_that_goes_on_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch):
    load = TorchLearner.load_state_dict

    def forgetful(self: TorchLearner, state: dict[str, Any]) -> None:
        load(self, {**state, **{name: value for name, value in self.state_dict().items() if "optim" in name}})

    monkeypatch.setattr(TorchLearner, "load_state_dict", forgetful)
    with pytest.raises(AssertionError, match="differs in a resumed run"):
        conformance.check_device(ALGORITHMS["td3"], "torch", "cpu")
