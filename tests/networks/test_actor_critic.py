"""Policies with value functions: images, initial parameters, layouts, against the layers' definitions in NumPy."""

import numpy as np
import pytest
from built import EVERYWHERE, agent, agent_defined, build, call, initial
from cores import with_one_and_two_threads
from learning_cases import box, observations
from policy_cases import BOTH, FRAMES, OBSERVATIONS, PARTS, PICTURE, VECTOR, image, small
from policy_cases import build as build_learner

from duetto.errors import UsageError
from duetto.functional.pytree import tree_leaves
from duetto.learners.policy import is_faster
from duetto.networks import initializers
from duetto.networks.spaces import Discrete

RANDOM = np.random.default_rng(3)


@pytest.fixture
def quickly(monkeypatch):
    """Weights are zeros: 3,136 rows at right angles take a second to find."""
    monkeypatch.setattr(initializers, "orthogonal", lambda random, shape, gain: np.zeros(shape))


def check(kind, spec, obs, tolerance=1e-5):
    expected, found = agent_defined(spec, initial(spec), obs), tree_leaves(call(kind, build(kind, spec), obs))
    for ours, theirs in zip((found[0], found[-1]), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    assert all(array.dtype == np.float32 for array in found)


# 1 row and 40: few take PyTorch's own products, many on AMD processors oneDNN's. Policy gains as large as the others',
# so that the policy head's part shows.
@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@pytest.mark.parametrize(
    "observation", [VECTOR, PARTS, Discrete(5), box(2, 2)], ids=["vector", "dict", "choice", "matrix"]
)
def test_layers_and_two_heads(kind, size, shared, observation):
    spec = agent(observation, shared_torso=shared, policy_gain=1.0, zero_biases=False)
    check(kind, spec, observations(observation, size, RANDOM))


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_no_hidden_layers(kind):
    check(kind, agent(hidden=(), policy_gain=1.0), observations(VECTOR, 4, RANDOM))


@pytest.mark.parametrize("kind", ["torch", "jax"])
@pytest.mark.parametrize(
    "observation",
    [FRAMES, PICTURE, BOTH, image(40, 52, 3), image(1, 44, 36), image(3, 3, 2), image(1, 2, 5)],
    ids=["frames", "small", "both", "wide", "one channel", "3 pixels", "2 pixels"],
)
def test_images(kind, observation):
    spec = agent(observation, policy_gain=1.0, shared_torso=True, zero_biases=False)
    check(kind, spec, observations(observation, 3, RANDOM), tolerance=1e-4)


def test_images_of_a_single_pixels_width_are_refused(backend):
    """Nothing is left of them behind a convolution: a network would see nothing."""
    with pytest.raises(UsageError, match=r"^Images of the shape \(1, 1, 5\) are too small"):
        build_learner(backend, small(), image(1, 1, 5))


def test_where_numpy_acts():
    """Elsewhere the frameworks act: for images, for a user's own networks, for wide layers."""
    assert is_faster(agent())
    assert is_faster(agent(PARTS, "numbers", hidden=(300, 300)))
    assert is_faster(agent(hidden=()))
    assert not is_faster(agent(hidden=(64, 301)))
    assert not any(is_faster(agent(observation)) for observation in (FRAMES, PICTURE, BOTH))


# ---------------------------------------------------------------------------------------------------- first parameters
def test_weights_at_right_angles_are_the_same_on_any_number_of_cores():
    """OpenBLAS adds in another order on two."""
    weights = with_one_and_two_threads(lambda: initializers.orthogonal(np.random.default_rng(0), (256, 348), 1.0))
    np.testing.assert_array_equal(*weights)


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("gain", [0.01, 0.1])
def test_p4_weights_are_orthogonal(observation, gain):
    """W Wᵀ = gain² I, or Wᵀ W where there are more rows than columns: √2, at the heads `policy_gain` and 1."""
    values = initial(agent(OBSERVATIONS[observation], policy_gain=gain))
    gains = {"policy_head": gain, "value_head": 1.0}
    weights = {name.removesuffix(".weight"): value for name, value in values.items() if name.endswith(".weight")}
    assert weights.keys() > gains.keys()
    for name, value in weights.items():
        assert value.flags.c_contiguous, (
            f"{name} lies column by column: PyTorch would turn its gradient at every update"
        )
        flat = value.reshape(len(value), -1).astype(np.float64)
        square = flat @ flat.T if len(flat) <= flat.shape[1] else flat.T @ flat
        np.testing.assert_allclose(
            square, gains.get(name, np.sqrt(2)) ** 2 * np.eye(len(square)), atol=1e-5, err_msg=name
        )


def test_p4_directions_are_uniform():
    """The mean of every element is 0: without care, the factorisation's diagonal has one sign."""
    drawn = [initial(agent(box(2), hidden=(2,)), seed)["value_torso.layers.0.weight"] for seed in range(1000)]
    np.testing.assert_allclose(np.mean(drawn, axis=0), 0, atol=0.15)  # of ±√2, whose standard error is .03
    np.testing.assert_allclose(np.std(drawn, axis=0), 1, atol=0.1)


@pytest.mark.parametrize("observation", [VECTOR, FRAMES])
def test_p4_biases_are_0_or_pytorchs(quickly, observation):
    for zero in (True, False):
        values = initial(agent(observation, zero_biases=zero, hidden=(64, 64), image_features=256))
        for name, value in values.items():
            if not name.endswith(".bias"):
                continue
            inputs = int(np.prod(values[name.replace("bias", "weight")].shape[1:]))
            assert np.abs(value).max() <= (0 if zero else inputs**-0.5)
            if not zero and value.size >= 64:
                assert np.abs(value).max() > 0.8 * inputs**-0.5
                assert value.std() == pytest.approx((3 * inputs) ** -0.5, rel=0.25)


def test_the_logarithm_of_the_std_is_one_parameter_for_each_number():
    values = initial(agent(action="numbers", initial_log_std=-0.5))
    np.testing.assert_array_equal(values["log_std"], [-0.5, -0.5])
    assert "log_std" not in initial(agent(action="choices"))


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_it_does_not_depend_on_the_observation(kind):
    spec = agent(action="numbers")
    values = initial(spec) | {"log_std": np.array([0.5, -2.0], np.float32)}
    policy, _ = call(kind, build(kind, spec, values), observations(VECTOR, 3, RANDOM))
    np.testing.assert_array_equal(policy.log_std, np.array([[0.5, -2.0]] * 3, np.float32))


def test_pitfall_18_policys_and_values_torsos_start_different():
    values = initial(agent())
    assert not np.any(values["policy_torso.layers.0.weight"] == values["value_torso.layers.0.weight"])


# ---------------------------------------------------------------------------------------------------- numbers of them
# SPEC P3: 8·8·4·32 + 32, 4·4·32·64 + 64, 3·3·64·64 + 64, 3136·512 + 512, 512·4 + 4, 512 + 1.
def test_p3_number_of_parameters(quickly):
    """Of the numbers that both frameworks are built from; `build` checks that they have no others."""
    first, last = (
        agent(image(*shape), hidden=(), image_features=512, shared_torso=True) for shape in ((4, 84, 84), (84, 84, 4))
    )
    assert sum(value.size for value in initial(last).values()) == 1_686_693
    assert first.torso.convolutions() == last.torso.convolutions()


# ---------------------------------------------------------------------------------------------------- layouts
def picture(height, width):
    """Brighter to the right and, ten times as slowly, downwards; and another in each channel: nothing is symmetric."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    return ((x * 3 + y * 30 // 100 + c * 40) % 256).astype(np.uint8)[None]


@pytest.mark.parametrize("kind", ["torch", "jax"])
@pytest.mark.parametrize(("height", "width"), [(48, 36), (12, 9)])
def test_p2_either_layout_of_a_picture_gives_the_same_numbers(kind, height, width):
    """And the picture on its side gives others."""
    last, first, turned = image(height, width, 3), image(3, height, width), image(width, height, 3)
    options = {"shared_torso": True, "policy_gain": 1.0}
    obs = picture(height, width)
    values = initial(agent(last, **options))

    def of(space, obs):
        return tree_leaves(call(kind, build(kind, agent(space, **options), values), obs))

    one, other = of(last, obs), of(first, np.transpose(obs, (0, 3, 1, 2)))
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    if (height, width) == (12, 9):  # where both ways up have the same number of features
        on_its_side = of(turned, np.transpose(obs, (0, 2, 1, 3)))
        assert not np.allclose(one[-1], on_its_side[-1], atol=1e-3)


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_pixels_are_scaled_to_1(kind):
    """Of a white picture each first weight counts once: with biases 0, half the brightness is half of everything."""
    spec = agent(PICTURE, hidden=(), shared_torso=True, policy_gain=1.0)
    white, grey = (np.full((1, 7, 7, 3), brightness, np.uint8) for brightness in (255, 51))
    found = [tree_leaves(call(kind, build(kind, spec), obs))[0] for obs in (white, grey)]
    np.testing.assert_allclose(found[0], agent_defined(spec, initial(spec), white)[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], found[0] / 5, rtol=1e-4, atol=1e-5)
