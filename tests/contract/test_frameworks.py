"""PyTorch and JAX learn the same parameters with each algorithm and feature, also after an interruption."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract_cases import (
    BACKENDS,
    CASES,
    DEMONSTRATED,
    FEATURES,
    PLAIN,
    RECURRENT,
    STEPS,
    Runs,
    distance,
    logged,
    parameters,
)

import duetto

pytest.importorskip("torch")
pytest.importorskip("jax")

Command = Callable[..., Any]
TOLERANCES = {"bfloat16": 0.02, "CrossQ": 0.01, "FlashSAC": 0.01}  # rounding, and batch statistics of eight rows


@pytest.mark.parametrize("case", [*PLAIN, *RECURRENT, *FEATURES])
def test_torch_and_jax_learn_the_same_parameters(trained: Runs, case: str):
    in_torch, in_jax = (trained(case, backend) for backend in BACKENDS)
    assert distance(in_torch, in_jax) < TOLERANCES.get(case, 1e-3)
    assert [row.keys() for row in logged(in_torch)] == [row.keys() for row in logged(in_jax)]
    if compared_with := CASES[case].compared_with:
        one, other = parameters(in_torch), parameters(trained(compared_with))
        assert one.shape != other.shape or np.abs(one - other).max() > 1e-6, "the feature has no effect"


@pytest.mark.parametrize("case", PLAIN)
def test_trained_agent_acts_equally_on_both_frameworks(trained: Runs, case: str):
    path = trained(case).path
    obs = np.zeros(3 if "Pendulum" in path.joinpath("config.yaml").read_text() else 4, np.float32)
    actions = [duetto.load(path, backend=backend).act(obs, deterministic=True) for backend in BACKENDS]
    np.testing.assert_allclose(*actions, atol=1e-4)


@pytest.mark.parametrize("case", PLAIN)
def test_stopped_run_resumes_exactly(trained: Runs, tmp_path: Path, case: str):
    def stop(trainer: Any) -> None:
        if trainer.step >= STEPS - 13:
            trainer.stop()

    for backend in BACKENDS:
        options = {"runs_dir": tmp_path, "name": backend, "callbacks": [stop]}
        stopped = CASES[case].train(backend, trained.demonstrations, **options)
        assert stopped.metrics()[-1]["step"] < STEPS
        resumed = stopped.resume()
        np.testing.assert_array_equal(parameters(resumed), parameters(trained(case, backend)))
        assert logged(resumed) == logged(trained(case, backend))


KILLED_RUN = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from contract_cases import PLAIN

def die(trainer):
    if trainer.step >= 33:
        os.kill(os.getpid(), signal.SIGKILL)

PLAIN["TD3"].train(sys.argv[2], runs_dir=sys.argv[3], name="killed", callbacks=[die])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize("backend", BACKENDS)
def test_killed_run_resumes_exactly(trained: Runs, command: Command, tmp_path: Path, backend: str):
    arguments = [str(Path(__file__).parent), backend, str(tmp_path)]
    died = subprocess.run([sys.executable, "-c", KILLED_RUN, *arguments], capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert command("resume killed --quiet").code == 0
    run = duetto.Run(tmp_path / "killed")
    np.testing.assert_array_equal(parameters(run), parameters(trained("TD3", backend)))
    assert logged(run) == logged(trained("TD3", backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_seeds_trained_together_equal_single_runs(trained: Runs, tmp_path: Path, backend: str):
    runs = CASES["TD3"].train(backend, runs_dir=tmp_path, seeds=[0, 1, 2])
    assert len(runs) == len({run.path for run in runs}) == 3
    assert distance(runs[0], trained("TD3", backend)) < 1e-3 < distance(runs[0], runs[1])


@pytest.mark.parametrize("case", [case for case in FEATURES if "masks" in case])
def test_agent_obeys_the_action_mask(trained: Runs, case: str):
    agent, random = trained(case).agent(), np.random.default_rng(0)
    for _ in range(20):
        mask = np.eye(4, dtype=np.int8)[random.integers(4)]
        assert agent.act(mask.astype(np.float32), action_mask=mask) == mask.argmax()


@pytest.mark.parametrize("case", DEMONSTRATED)
def test_updates_use_demonstrations(trained: Runs, case: str):
    assert all(trained(case, backend).metrics()[-1]["learn/demonstrations"] > 0 for backend in BACKENDS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_on_a_gpu(tmp_path: Path, backend: str):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    if not (torch.cuda.is_available() if backend == "torch" else jax.default_backend() == "gpu"):
        pytest.skip("no GPU")
    run = CASES["TD3"].train(backend, runs_dir=tmp_path, device="cuda")
    assert np.isfinite(parameters(run)).all()
