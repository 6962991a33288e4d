"""What makes a run on a GPU the same in each process; whether it is, `test_gpu` sees where there is one."""

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
from duetto.learners.jax import EIGEN, EIGEN_ROWS, EIGEN_UNITS, SAME_EACH_TIME
from duetto.learners.torch import deterministic as repeatable

VARIABLE = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture(autouse=True)
def as_before():
    yield
    torch.set_deterministic_debug_mode("default")
    deterministic.fill_uninitialized_memory = True


def modes() -> tuple[int, bool]:
    return torch.get_deterministic_debug_mode(), deterministic.fill_uninitialized_memory


def test_operations_repeat_inside_and_what_was_set_is_back_outside():
    with repeatable():
        assert modes() == (1, False)
    assert modes() == (0, True)
    with pytest.raises(ZeroDivisionError), repeatable():
        _ = 1 / 0
    assert modes() == (0, True)


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("fills", [True, False])
def test_who_asked_for_more_keeps_it(mode: int, fills: bool):
    torch.set_deterministic_debug_mode(mode)
    deterministic.fill_uninitialized_memory = fills
    with repeatable():
        assert modes() == (mode, fills)
    assert modes() == (mode, fills)


@pytest.mark.parametrize(("before", "after"), [(None, ":4096:8"), (":16:8", ":16:8")])
def test_cublas_has_memory_of_one_size(before: str | None, after: str):
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)} | ({VARIABLE: before} if before else {})
    code = f"import os, duetto.learners.torch; print(os.environ['{VARIABLE}'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == after


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_updates_on_a_gpu_repeat(device: str, monkeypatch: pytest.MonkeyPatch):
    algorithm, found = small(TD3), list[int]()
    learner: Any = build("torch", algorithm=algorithm)
    update, as_tensors = TD3.update, torch_module.as_tensors

    def noted(self: TD3, *arguments: Any) -> None:
        found.append(torch.get_deterministic_debug_mode())
        update(self, *arguments)

    monkeypatch.setattr(TD3, "update", noted)
    monkeypatch.setattr(torch_module, "as_tensors", lambda tree, _: as_tensors(tree, torch.device("cpu")))
    learner.device = SimpleNamespace(type=device)
    learner.update(batch())
    monkeypatch.setattr(
        TD3, "act", lambda self, nets, obs, noise: found.append(torch.get_deterministic_debug_mode()) or obs
    )
    learner.act(batch().obs)
    assert found == [int(device == "cuda")] * 2
    assert torch.get_deterministic_debug_mode() == 0


def test_jax_compiles_for_a_gpu_by_rule(monkeypatch: pytest.MonkeyPatch):
    algorithm, told, jit = small(TD3), list[Any](), jax.jit

    def noted(function: Any, **options: Any) -> Any:
        if not options.get("inline"):  # a part of a program, which is compiled with it
            told.append(options.get("compiler_options"))
        return jit(function, **options)

    for on_gpu in (False, True):
        learner: Any = build("jax", algorithm=algorithm)
        learner.on_gpu, learner._numpy_rows = on_gpu, 0
        told.clear()
        with monkeypatch.context() as patch:
            patch.setattr(jax, "jit", noted)
            learner.update(batch())
            learner.act(batch().obs)
        assert len(told) >= 2
        assert all((own == SAME_EACH_TIME) is on_gpu for own in told), told
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_deterministic_ops=false")  # somebody's own way
    assert learner.compiler_options() is None


def test_jax_multiplies_large_batches_by_small_layers_with_eigen(monkeypatch: pytest.MonkeyPatch):
    small_layers: Any = build("jax", algorithm=small(TD3))
    wide: Any = build("jax", algorithm=TD3(hidden=(EIGEN_UNITS,), critic_hidden=(8,)))
    half: Any = build("jax", algorithm=small(TD3), precision="bf16")
    assert small_layers.compiler_options(EIGEN_ROWS) == EIGEN
    for learner, rows in [(small_layers, EIGEN_ROWS - 1), (wide, EIGEN_ROWS), (half, EIGEN_ROWS)]:
        assert learner.compiler_options(rows) is None
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=dot")
    assert small_layers.compiler_options(EIGEN_ROWS) is None
