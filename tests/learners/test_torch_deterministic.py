"""Settings that make GPU runs identical in each process. `test_gpu` compares such runs on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import jax
import pytest
import torch
from learning_cases import batch, build, small
from torch.utils import deterministic

from duetto.algorithms import TD3
from duetto.learners import torch as torch_module
from duetto.learners.jax import SAME_EACH_TIME
from duetto.learners.torch import deterministic as repeatable

VARIABLE = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture(autouse=True)
def restore_deterministic_mode():
    yield
    torch.set_deterministic_debug_mode("default")
    deterministic.fill_uninitialized_memory = True


@pytest.mark.parametrize(
    ("before", "inside"), [((0, True), (1, False)), ((1, True), (1, True)), ((2, False), (2, False))]
)
def test_deterministic_mode_is_restored(before: Any, inside: Any):
    """A stricter mode set by the user also applies inside."""
    torch.set_deterministic_debug_mode(before[0])
    deterministic.fill_uninitialized_memory = before[1]
    with repeatable():
        assert (torch.get_deterministic_debug_mode(), deterministic.fill_uninitialized_memory) == inside
    assert (torch.get_deterministic_debug_mode(), deterministic.fill_uninitialized_memory) == before


@pytest.mark.parametrize(("before", "after"), [(None, ":4096:8"), (":16:8", ":16:8")])
def test_cublas_workspace_is_set_unless_configured(before: str | None, after: str):
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)} | ({VARIABLE: before} if before else {})
    code = f"import os, duetto.learners.torch; print(os.environ['{VARIABLE}'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == after


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_torch_is_deterministic_on_gpu_only(device: str, monkeypatch: pytest.MonkeyPatch):
    algorithm, found = small(TD3), list[int]()
    learner: Any = build("torch", algorithm=algorithm)
    update, as_tensors = TD3.update, torch_module.as_tensors

    def record_mode(self: TD3, *arguments: Any) -> None:
        found.append(torch.get_deterministic_debug_mode())
        update(self, *arguments)

    monkeypatch.setattr(TD3, "update", record_mode)
    monkeypatch.setattr(torch_module, "as_tensors", lambda tree, _: as_tensors(tree, torch.device("cpu")))
    learner.device = SimpleNamespace(type=device)
    learner.update(batch())
    monkeypatch.setattr(
        TD3, "act", lambda self, nets, obs, noise: found.append(torch.get_deterministic_debug_mode()) or obs
    )
    learner.act(batch().obs)
    assert found == [int(device == "cuda")] * 2
    assert torch.get_deterministic_debug_mode() == 0


def test_jax_compiles_deterministically_for_gpu_only(monkeypatch: pytest.MonkeyPatch):
    algorithm, compiler_options_given, jit = small(TD3), list[Any](), jax.jit

    def record_options(function: Any, **options: Any) -> Any:
        if not options.get("inline"):  # inlined functions are compiled with their caller
            compiler_options_given.append(options.get("compiler_options"))
        return jit(function, **options)

    for on_gpu in (False, True):
        learner: Any = build("jax", algorithm=algorithm)
        learner.on_gpu, learner._numpy_rows = on_gpu, 0
        compiler_options_given.clear()
        with monkeypatch.context() as patch:
            patch.setattr(jax, "jit", record_options)
            learner.update(batch())
            learner.act(batch().obs)
        assert len(compiler_options_given) >= 2
        assert all((own == SAME_EACH_TIME) is on_gpu for own in compiler_options_given), compiler_options_given
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_deterministic_ops=false")  # set by the user
    assert learner.compiler_options() is None
