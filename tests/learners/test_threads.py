"""The trial of thread counts, and that results do not depend on it."""

import os

import pytest
from learning_cases import ACTION, VECTOR, assert_same, batch, small

from duetto import learners
from duetto.learners.threads import PERIOD, TRIAL, ThreadTrial
from duetto.learners.torch import TorchLearner
from duetto.networks import torch_layers as networks


def run(trial: ThreadTrial, updates: int, cost) -> list[int]:
    used = []
    for _ in range(updates):
        used.append(trial.threads())
        trial.note(cost(used[-1]))
    return used


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


@pytest.mark.skipif(not networks.USE_ONEDNN, reason="threads are tried only where products come from oneDNN")
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_results_do_not_depend_on_the_number_of_threads(precision):
    """At the full size: small operations would run on one thread anyway."""
    ended = []
    for threads in (1, 2, 0):
        learner = learners.build(
            "torch", small(hidden=(400, 300)), VECTOR, ACTION, threads=threads, precision=precision
        )
        assert (learner._trial is not None) == (threads == 0 and (os.cpu_count() or 1) > 1)
        for number in range(2 * TRIAL + 8):
            learner.update(batch(256, seed=number))
        ended.append(learner.parameters())
    for other in ended[1:]:
        for network, values in ended[0].items():
            assert_same(other[network], values)


def test_recurrent_layers_keep_their_number_of_threads():
    """The gradients of PyTorch's own recurrent layers depend on it."""
    for options, tried in (({}, (os.cpu_count() or 1) > 1 and networks.USE_ONEDNN), ({"recurrent": "gru"}, False)):
        learner = learners.build("torch", small(**options), VECTOR, ACTION, threads=0)
        assert isinstance(learner, TorchLearner)
        assert (learner._trial is not None) == tried
