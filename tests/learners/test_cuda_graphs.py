"""Updates recorded as CUDA graphs, tested without a GPU.

`CpuRecorder` works like a CUDA graph on the CPU: it records operations with the memory that they read and write, and
replays them in that memory without running Python. A value that is not a tensor stays as recorded, so an update that
reads changing values from Python gives wrong results in these tests.

PyTorch's device `meta`, whose tensors have no values, detects operations that CUDA graphs forbid: operations that read
a value, whose output shape depends on a value, or that copy from the CPU's memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from learning_cases import batch, build, small
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from duetto import learners
from duetto.algorithms import ALGORITHMS, TD3
from duetto.functional.pytree import tree_stack
from duetto.learners import cuda_graphs as recorded
from duetto.learners.base import Update, on_host
from duetto.learners.cuda_graphs import GraphRecorder
from duetto.learners.torch import TorchLearner
from duetto.testing import conformance

CPU = torch.device("cpu")


# ------------------------------------------------------------------------------------------------ stand-ins
class _Operations(TorchDispatchMode):
    """Records each operation with its input and output tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, given))
        return given


class CpuRecorder(GraphRecorder):
    """Records and replays operations on the CPU."""

    recorded = 0

    def _warm_up(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _capture(self, work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        self.recorded += 1
        with _Operations() as tape:
            results = work()

        def replay() -> None:
            with torch.no_grad():
                for func, args, kwargs, given in tape.operations:
                    for old, new in zip(tree_leaves(given), tree_leaves(func(*args, **kwargs)), strict=True):
                        if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                            old.copy_(new)

        return replay, results


def recording(learner: Any) -> Any:
    """Make the learner record its updates, as on a GPU."""
    assert isinstance(learner, TorchLearner)
    assert learner._recordable()
    learner._recorder = CpuRecorder(CPU, learner._changing)
    return learner


def outcome(learner: Any) -> list[np.ndarray]:
    state = learner.state_dict()
    return [np.asarray(leaf) for leaf in tree_leaves([state["parameters"], state["optimizers"]])]


@contextlib.contextmanager
def trials(name: str) -> Iterator[list[Any]]:
    """Yield the conformance trials of an algorithm without recurrent layers."""
    options = {"recurrent": "none"} if "recurrent" in ALGORITHMS[name].options() else {}
    with conformance._trials(ALGORITHMS[name], **options) as found:
        yield found


# ------------------------------------------------------------------------------------------------ replayed updates
@pytest.mark.parametrize("name", ALGORITHMS)
def test_replayed_updates_equal_direct_updates(name: str):
    """Covers all phases, changing learning rates and schedules, and actions."""
    with trials(name) as (trial, *_):
        own = trial.algorithm, trial.observation, trial.action
        pair = [learners.build("torch", *own, threads=1) for _ in range(2)]
        recording(pair[1])
        conformance._compare_pair(trial, pair)


def test_replay_uses_current_learning_rate():
    """The second update has learning rate 0, so it changes nothing."""
    learner = recording(
        build("torch", small(TD3, policy_delay=1, tau=0.0, learning_rate_decay="linear", learning_rate_final=0.0))
    )
    learner.update(batch(), 0.0)
    before = learner.parameters()
    learner.update(batch(), 1.0)
    for name, values in learner.parameters().items():
        for key, value in values.items():
            np.testing.assert_array_equal(value, before[name][key])


def test_new_batch_shape_triggers_new_recording():
    """The warm-up before a recording changes no state, and later updates do not overwrite metrics."""
    learner, direct = recording(build("torch", small(TD3))), build("torch", small(TD3))
    metrics = [[one.update(batch(size)) for one in (learner, direct)] for size in (32, 32, 16, 16, 32)]
    assert learner._recorder.recorded == 4  # two phases of two sizes
    assert {name: state["steps"] for name, state in learner.optimizer_state().items()} == {"critic": 5, "actor": 2}
    for one, other in metrics:
        np.testing.assert_allclose(on_host(one.values), on_host(other.values), rtol=1e-4, atol=1e-6)
    for ours, theirs in zip(outcome(learner), outcome(direct), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_replay_uses_loaded_state():
    """Recorded operations read the memory into which the state is loaded."""
    learner, other = recording(build("torch", small(TD3), seed=0)), build("torch", small(TD3), seed=1)
    obs = batch().obs
    for one in (learner, other):
        one.update(batch()), one.collect(obs, None)
    learner.load_state_dict(other.state_dict())
    np.testing.assert_allclose(learner.collect(obs, None)[0], other.collect(obs, None)[0], rtol=1e-5)
    for one in (learner, other):
        one.update(batch())
    for ours, theirs in zip(outcome(learner), outcome(other), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("adapted", [False, True], ids=["one learning rate", "learning rate per seed"])
def test_replayed_multi_seed_updates_equal_direct_updates(adapted: bool):
    """Each seed has its own minibatches."""
    with trials("ppo") as (trial, *_):
        own = trial.algorithm, trial.observation, trial.action
        batches = trial.batches(6)
        pair: list[Any] = [learners.build("torch", *own, seed=(0, 1), threads=1) for _ in range(2)]
    recording(pair[1])
    random = np.random.default_rng(0)
    for seed_batches in zip(batches[::2], batches[1::2], strict=True):
        rows = np.stack([trial.algorithm.split(random, len(one.weight)) for one in seed_batches])
        rates = {name: np.array([1e-3, 2e-3 if adapted else 1e-3]) for name in pair[0].optimizer_specs}
        scheduled = {name: np.full(2, value) for name, value in trial.algorithm.scheduled(0.0).items()}
        update = Update(0, tree_stack(seed_batches), rows, None, rates, scheduled)
        found = [one.update_alike([update])[0] for one in pair]
        np.testing.assert_allclose(*(on_host(one.values) for one in found), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(outcome(pair[0]), outcome(pair[1]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


# ------------------------------------------------------------------------------------------------ forbidden operations
class _NoCopies(TorchDispatchMode):
    """Fails on operations that copy from or to the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._fused_adam_.tensor_lr, torch.ops.aten._fused_adamw_.tensor_lr):
            return None  # not implemented on meta
        given = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, given)) if isinstance(leaf, torch.Tensor)]
        where = {tensor.device.type for tensor in tensors}
        if len(where) > 1:
            raise AssertionError(f"{func} copies from the CPU: {sorted(where)}")
        return given


class _NoPythonNumbers(TorchFunctionMode):
    """Fails on tensors made of Python numbers, which are copied from the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy, torch.Tensor.new_tensor):
            raise AssertionError(f"{func} copies from the CPU")
        return func(*args, **(kwargs or {}))


class _MetaRecorder(CpuRecorder):
    @contextlib.contextmanager
    def _warm_up(self) -> Iterator[None]:
        with _NoCopies(), _NoPythonNumbers():
            yield

    def _capture(self, work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        self.recorded += 1
        with self._warm_up():
            return lambda: None, work()


def build_on_meta_device(trial: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Build a learner on PyTorch's device `meta`."""
    monkeypatch.setattr(recorded.DeviceInputs, "copy", lambda self, inputs: None)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)  # it fails for meta
    learner: Any = learners.build("torch", trial.algorithm, trial.observation, trial.action, device="meta")
    learner._recorder = _MetaRecorder(learner.device, learner._changing)
    return learner


@pytest.mark.parametrize("name", ALGORITHMS)
def test_updates_contain_only_recordable_operations(name: str, monkeypatch: pytest.MonkeyPatch):
    with trials(name) as found:
        for trial in found:
            learner = build_on_meta_device(trial, monkeypatch)
            for one in trial.batches(conformance.UPDATES):
                learner.update(one)
            assert learner._recorder.recorded > 0
