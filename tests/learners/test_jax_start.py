"""Compilation of JAX learners: nothing before the first update, one trace per phase, full float32 on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from learning_cases import batch, build, small

from duetto.algorithms import TD3, CrossQ


def test_nothing_is_compiled_before_the_first_update():
    """Loading a checkpoint also compiles nothing."""
    kind = small(CrossQ, hidden=(19, 14))
    state = build("jax", kind).state_dict()
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.extend([event] if "backend_compile" in event else [])
    )
    learner = build("jax", kind)
    learner.load_state_dict(state)
    assert compiled == []
    learner.update(batch())
    assert compiled


@dataclass(frozen=True)
class TracedTD3(TD3):
    """Records the phase of each trace of `update`."""

    def update(self, learner: Any, batch: Any, noise: Any, phase: int) -> None:
        traced_phases.append(phase)
        super().update(learner, batch, noise, phase)


traced_phases: list[int] = []


def test_a_phase_is_traced_once_for_all_its_programs():
    traced_phases.clear()
    learner: Any = build("jax", small(TracedTD3, policy_delay=3))
    learner.update(batch())
    learner.update_each([batch(seed=i) for i in range(5)], [0.0] * 5)  # programs of one and of two updates
    assert traced_phases == [1, 0]


def test_gpu_matrix_products_use_full_float32(monkeypatch: pytest.MonkeyPatch):
    """By default JAX rounds to TensorFloat-32 on a GPU. On a CPU, Duetto does not set the precision."""
    precisions: list[str] = []
    set_precision = jax.default_matmul_precision
    monkeypatch.setattr(jax, "default_matmul_precision", lambda name: precisions.append(name) or set_precision(name))

    def products(on_gpu: bool) -> tuple[str, list[str]]:
        learner: Any = build("jax", small(TD3))
        learner.on_gpu = on_gpu
        precisions.clear()
        obs = np.zeros((2, 5), np.float32)
        acting = str(jax.make_jaxpr(learner._program(learner.algorithm.act))(learner.state, obs, None))
        by_acting = len(precisions)
        learner.update(batch())
        return acting, precisions[by_acting:]

    acting, updating = products(on_gpu=False)
    assert "HIGHEST" not in acting
    assert updating == []
    acting, updating = products(on_gpu=True)
    assert "HIGHEST" in acting
    assert updating[0] == "float32"
