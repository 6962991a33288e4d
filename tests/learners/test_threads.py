"""Which number of threads is used, and that the results are one thread's wherever that is not the user's choice."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
import torch
from learning_cases import ACTION, VECTOR, assert_same, batch, small

from duetto import learners
from duetto.learners import Learner
from duetto.learners import torch as torch_learner
from duetto.learners.threads import PERIOD, TRIAL, FloatingThreads, ThreadTrial
from duetto.learners.torch import TorchLearner
from duetto.networks import torch_layers


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch_learner, "granted", lambda: 2)
    before, products = torch.get_num_threads(), torch_layers.products.onednn
    yield
    torch.set_num_threads(before)
    torch_layers.products.onednn = products


def run(trial: ThreadTrial, updates: int, cost) -> list[int]:
    used = []
    for _ in range(updates):
        used.append(trial.threads())
        trial.note(cost(used[-1]))
    return used


def build(threads: int = 0, **options: Any) -> TorchLearner:
    precision = options.pop("precision", "float32")
    learner = learners.build("torch", small(**options), VECTOR, ACTION, threads=threads, precision=precision)
    assert isinstance(learner, TorchLearner)
    return learner


def learn(learner: Learner, updates: int = 2 * TRIAL + 8, size: int = 32) -> list[int]:
    """Learn and act; the number of threads that each update was left with."""
    used = []
    for number in range(updates):
        learner.update(batch(size, seed=number))
        used.append(torch.get_num_threads())
        learner.act(batch(3, seed=number).obs)
        assert torch.get_num_threads() == learner.threads, "acting has the number that counts"
    return used


def assert_equal(one: Learner, other: Learner) -> None:
    for network, values in one.parameters().items():
        assert_same(values, other.parameters()[network])
    assert_same({"obs": one.act(batch(3).obs)}, {"obs": other.act(batch(3).obs)})


def test_each_candidate_has_its_turn_and_the_faster_one_goes_on():
    used = run(ThreadTrial(2), PERIOD, lambda threads: {1: 5.0, 2: 4.0}[threads])
    assert used == [1] * TRIAL + [2] * (PERIOD - TRIAL)


def test_a_collapse_is_noticed_at_the_next_trial_and_so_is_its_end():
    trial = ThreadTrial(4)
    assert run(trial, PERIOD, lambda threads: 1.0 / threads)[-1] == 4
    assert run(trial, PERIOD, lambda threads: {1: 1.0, 4: 9.0}[threads])[-1] == 1
    assert run(trial, PERIOD, lambda threads: 1.0 / threads)[-1] == 4


def test_a_few_slow_updates_decide_nothing():
    trial, slow = ThreadTrial(2), iter([50.0] * 3)
    used = run(trial, 3 * TRIAL, lambda threads: 1.0 if threads == 1 else next(slow, 0.5))
    assert used[-1] == 2


def test_every_kind_of_work_is_tried_once_and_floats_only_where_it_comes_to_the_same():
    now, tried = [0], []
    floating = FloatingThreads(4, lambda number: now.__setitem__(0, number))

    def same() -> bytes:
        tried.append(("same", now[0]))
        return b"7"

    def another() -> bytes:
        tried.append(("another", now[0]))
        return str(now[0]).encode()

    used: dict[str, list[int]] = {"same": [], "another": []}
    for _ in range(3 * TRIAL):
        for kind, outcome in (("same", same), ("another", another)):
            floating.before_update(kind, outcome)
            used[kind].append(now[0])
        floating.after_update(1.0 / used["same"][-1])
    assert used == {"same": [1] * TRIAL + [4] * 2 * TRIAL, "another": [1] * 3 * TRIAL}
    assert sorted(tried) == [("another", 1), ("another", 4), ("same", 1), ("same", 4)]


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_without_a_wish_results_are_those_of_one_thread(precision: str):
    """At the full size, where the products of this processor may or may not depend on the number."""
    free, one = (build(threads, hidden=(400, 300), precision=precision) for threads in (0, 1))
    for learner in (free, one):
        learn(learner, TRIAL + 4, size=256)
    assert_equal(free, one)


def test_work_that_comes_to_the_same_uses_what_is_fastest(monkeypatch: pytest.MonkeyPatch):
    """So small that nothing is divided; the clock says that two threads are faster."""
    monkeypatch.setattr(FloatingThreads, "after_update", _two_are_faster)
    free, one = build(0), build(1)
    assert learn(free) == [1] * TRIAL + [2] * (TRIAL + 8)
    learn(one)
    assert_equal(free, one)


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_work_that_depends_on_the_number_is_done_by_one(monkeypatch: pytest.MonkeyPatch, part: str):
    monkeypatch.setattr(FloatingThreads, "after_update", _two_are_faster)
    monkeypatch.setattr(torch_layers, "linear", lambda x, weight, bias: Depends.apply(x, weight, bias, part))
    free, one = build(0), build(1)
    assert set(learn(free)) == {1}
    learn(one)
    assert_equal(free, one)


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_only_the_kind_that_depends_on_it_is_held(monkeypatch: pytest.MonkeyPatch, part: str):
    """The updates of TD3's actor, while the critic's alone float."""
    monkeypatch.setattr(FloatingThreads, "after_update", _two_are_faster)
    free, one = build(0), build(1)
    firsts = [learner._nets["actor"].values["layers.0.weight"] for learner in (free, one)]
    plain = torch_layers.linear

    def linear(x: Any, weight: Any, bias: Any) -> Any:
        depends = any(weight is first for first in firsts)
        return Depends.apply(x, weight, bias, part) if depends else plain(x, weight, bias)

    monkeypatch.setattr(torch_layers, "linear", linear)
    used = learn(free)
    assert used[TRIAL:][:4] in ([2, 1, 2, 1], [1, 2, 1, 2])
    learn(one)
    assert_equal(free, one)


def test_a_number_that_is_asked_for_is_kept_whatever_others_set():
    learner, other = build(2), build(1)
    assert set(learn(learner, 4)) == {2}
    assert set(learn(other, 4)) == {1}
    assert set(learn(learner, 2)) == {2}


@pytest.mark.parametrize("threads", [0, 2])
def test_recurrent_layers_have_a_fixed_number(threads: int):
    """How their work is divided changes with the episodes in a batch."""
    learner = build(threads, recurrent="gru")
    assert learner._floating is None
    assert (torch.get_num_threads(), learner.threads) == (threads or 1, threads or 1)


class Depends(torch.autograd.Function):
    """A linear layer that comes to something else with each number of threads, forward or backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, part: str) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.part = part
        return _sum(torch.addmm(bias, x, weight.T), part == "forward")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x, weight), (gradient,) = ctx.saved_tensors, gradients
        return gradient @ weight, _sum(gradient.T @ x, ctx.part == "backward"), gradient.sum(0), None


def _sum(values: Any, depends: bool) -> Any:
    return values * (1 + 1e-6 * depends * torch.get_num_threads())


_after_update = FloatingThreads.after_update


def _two_are_faster(self: FloatingThreads, seconds: float) -> None:
    _after_update(self, 1.0 / torch.get_num_threads())


# ------------------------------------------------------------------------------------------------ whose products
INTEL = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: avx2 avx512f avx512_bf16 amx_tile\n"
ZEN_3 = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: fma avx2 vaes\n"
ZEN_4 = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: fma avx2 avx512f avx512_bf16\n"
ZEN_5 = "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t\t: fma avx2 avx512f avx512_bf16\n"


@pytest.mark.parametrize(
    ("said", "speed"), [(INTEL, "best"), (ZEN_3, "half"), (ZEN_4, "even"), (ZEN_5, "half"), ("", "best")]
)
def test_what_was_measured_of_a_processor_decides(said: str, speed: str):
    assert torch_layers.mkl_speed(said, operator=True) == speed
    assert torch_layers.mkl_speed(said, operator=False) == "best"


@pytest.mark.parametrize(
    ("speed", "few", "many"), [("best", False, False), ("even", True, False), ("half", True, True)]
)
def test_where_both_libraries_are_even_more_threads_take_mkl(
    speed: str, few: bool, many: bool, monkeypatch: pytest.MonkeyPatch
):
    """Without a wish the numbers are those of one thread, so both have the same products."""
    monkeypatch.setattr(torch_layers, "MKL", speed)
    assert torch_layers.prefers_onednn(0) == torch_layers.prefers_onednn(1) == few
    assert torch_layers.prefers_onednn(2) == torch_layers.prefers_onednn(3) == many


def test_learners_of_one_process_keep_their_own_products(monkeypatch: pytest.MonkeyPatch):
    """As they keep their threads: what another has computed in between, or in another thread, changes no bit."""
    monkeypatch.setattr(torch_layers, "prefers_onednn", lambda threads: threads == 0)
    monkeypatch.setattr(torch_layers.products, "onednn", None)
    floating, fixed = (learners.build("torch", small(), VECTOR, ACTION, threads=threads) for threads in (0, 2))
    used: set[bool] = set()

    def noting(x: Any, weight: Any, bias: Any) -> Any:
        used.add(torch_layers.products.onednn)
        return torch.nn.functional.linear(x, weight, bias)

    monkeypatch.setattr(torch_layers, "product", noting)
    for learner, expected in ((floating, True), (fixed, False), (floating, True)):
        used.clear()
        learner.update(batch())
        assert used == {expected}
        used.clear()
        learner.act(batch().obs)
        assert used == {expected}
        other = Thread(target=setattr, args=(torch_layers.products, "onednn", None))
        other.start()
        other.join()
        assert torch_layers.products.onednn == expected
