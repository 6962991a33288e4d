"""What a JAX learner does before its first update: what it would do otherwise, in less time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from learning_cases import batch, build, small

from duetto.algorithms import TD3, CrossQ


@pytest.mark.parametrize("seeds", [0, (0, 1)])
def test_nothing_is_compiled_before_the_first_update(seeds: Any):
    """Nor to continue from a checkpoint."""
    kind = small(CrossQ, hidden=(19, 13 + len(np.atleast_1d(seeds))))
    state = build("jax", kind).state_dict()
    compiled: list[str] = []
    listening = True

    def heard(event: str, seconds: float, **about: Any) -> None:
        if listening and "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(heard)
    learner = build("jax", kind, seed=seeds)
    if seeds == 0:  # several are loaded one by one
        learner.load_state_dict(state)
    before = len(compiled)
    if seeds == 0:
        learner.update(batch())
    listening = False
    assert before == 0
    assert bool(compiled) == (seeds == 0)


@dataclass(frozen=True)
class Counted(TD3):
    """How often its equations are gone through, by phase."""

    def update(self, learner: Any, batch: Any, noise: Any, phase: int) -> None:
        gone_through.append(phase)
        super().update(learner, batch, noise, phase)


gone_through: list[int] = []


def test_a_phase_is_traced_once_for_all_its_programs():
    gone_through.clear()
    learner: Any = build("jax", small(Counted, policy_delay=3))
    learner.update(batch())
    learner.update_each([batch(seed=i) for i in range(5)], [0.0] * 5)  # alone, in twos
    assert gone_through == [1, 0]


def test_on_a_gpu_float32_is_multiplied_as_float32(monkeypatch: pytest.MonkeyPatch):
    """JAX rounds to TensorFloat-32 there by default. On a processor nothing is said of precision."""
    asked: list[str] = []
    precisely = jax.default_matmul_precision
    monkeypatch.setattr(jax, "default_matmul_precision", lambda name: asked.append(name) or precisely(name))

    def products(on_gpu: bool) -> tuple[str, list[str]]:
        learner: Any = build("jax", small(TD3))
        learner.on_gpu = on_gpu
        asked.clear()
        obs = np.zeros((2, 5), np.float32)
        state = {name: learner._state[f"net/{name}"] for name in learner.algorithm.acting_networks}
        acting = str(jax.make_jaxpr(learner._program(learner.algorithm.act))(state, obs, None))
        by_acting = len(asked)
        learner.update(batch())
        return acting, asked[by_acting:]

    acting, updating = products(on_gpu=False)
    assert "HIGHEST" not in acting
    assert updating == []
    acting, updating = products(on_gpu=True)
    assert "HIGHEST" in acting
    assert updating[0] == "float32"
