"""bfloat16 computes networks faster and less exactly; parameters, targets and losses stay float32."""

import numpy as np
import pytest
from learning_cases import batch, build, small

from duetto.algorithms import DDPG, TD3


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_bfloat16_is_near_float32(backend, kind):
    """2 % of a loss: bfloat16 has 8 bits, .4 %, and a loss is a square."""
    one = batch(256)
    exact, rough = (build(backend, small(kind, hidden=(64, 64)), precision=name) for name in ("float32", "bf16"))
    for _ in range(2):
        ours, theirs = (np.asarray(learner.update(one).values) for learner in (exact, rough))
        assert theirs.dtype == np.float32
        assert not np.array_equal(ours, theirs)
        assert ours[0] == pytest.approx(theirs[0], rel=0.02)
        np.testing.assert_allclose(ours, theirs, atol=0.02)
    for name, net in rough.parameters().items():
        for key, values in net.items():
            assert values.dtype == np.float32, key
            np.testing.assert_allclose(values, exact.parameters()[name][key], atol=5e-3)
    for adam in rough.optimizer_state().values():
        assert all(moment.dtype == np.float32 for moments in ("first", "second") for moment in adam[moments].values())


def test_bfloat16_parameters_keep_small_steps(backend):
    """In bfloat16 itself a step of 1e-5 on a weight of .1 would be lost to rounding."""
    learner = build(backend, small(critic_learning_rate=1e-5), precision="bf16")
    before = learner.parameters()["critic"]["layers.0.weight"]
    learner.update(batch())
    moved = np.abs(learner.parameters()["critic"]["layers.0.weight"] - before)
    assert np.median(moved) == pytest.approx(1e-5, rel=0.05)


def test_acting_is_float32(backend):
    obs = batch().obs
    exact, rough = (build(backend, small(), precision=name) for name in ("float32", "bf16"))
    assert rough.act(obs).dtype == np.float32
    np.testing.assert_array_equal(exact.act(obs), rough.act(obs))
