"""Policy and value networks compared with NumPy definitions: images, initial parameters, image layouts."""

import numpy as np
import pytest
from cores import with_one_and_two_threads
from learning_cases import box, observations
from network_cases import FRAMEWORKS, agent, build, call, initial, reference_agent
from policy_cases import BOTH, OBSERVATIONS, PARTS, image, small
from policy_cases import build as build_learner

from duetto.errors import UsageError
from duetto.functional.pytree import tree_leaves
from duetto.networks import initializers
from duetto.networks.spaces import Discrete

RANDOM = np.random.default_rng(3)


@pytest.fixture
def zero_orthogonal_weights(monkeypatch):
    """Initialize weights with zeros, because orthogonal weights of 3,136 rows take a second."""
    monkeypatch.setattr(initializers, "orthogonal", lambda random, shape, gain: np.zeros(shape))


def assert_matches_reference(kind, spec, obs, tolerance=1e-5):
    expected, found = reference_agent(spec, initial(spec), obs), tree_leaves(call(kind, build(kind, spec), obs))
    for ours, theirs in zip((found[0], found[-1]), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    assert all(array.dtype == np.float32 for array in found)


# A large policy gain, so errors in the policy head are visible.
@pytest.mark.parametrize("kind", FRAMEWORKS)
@pytest.mark.parametrize(
    ("observation", "shared", "hidden"),
    [(PARTS, False, (16, 12)), (Discrete(5), True, (16, 12)), (box(2, 2), False, ())],
    ids=["dict, separate torsos", "discrete, shared torso", "matrix, no hidden layers"],
)
def test_policy_and_value_heads_match_reference(kind, observation, shared, hidden):
    spec = agent(observation, shared_torso=shared, policy_gain=1.0, zero_biases=False, hidden=hidden)
    assert_matches_reference(kind, spec, observations(observation, 40, RANDOM))


@pytest.mark.parametrize("kind", ["torch", "jax"])
@pytest.mark.parametrize(
    "observation",
    [BOTH, image(1, 44, 36), image(3, 3, 2), image(1, 2, 5)],
    ids=["images and vectors", "one channel", "3 x 3 pixels", "2 x 5 pixels"],
)
def test_image_network_matches_reference(kind, observation):
    spec = agent(observation, policy_gain=1.0, shared_torso=True, zero_biases=False)
    assert_matches_reference(kind, spec, observations(observation, 3, RANDOM), tolerance=1e-4)


def test_image_one_pixel_high_is_rejected(backend):
    """A convolution would have no outputs."""
    with pytest.raises(UsageError, match=r"^Images of the shape \(1, 1, 5\) are too small"):
        build_learner(backend, small(), image(1, 1, 5))


# --------------------------------------------------------------------------------------------------- initial parameters
def test_orthogonal_weights_do_not_depend_on_thread_count():
    """OpenBLAS sums in another order with two threads."""
    weights = with_one_and_two_threads(lambda: initializers.orthogonal(np.random.default_rng(0), (256, 348), 1.0))
    np.testing.assert_array_equal(*weights)


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("gain", [0.01, 0.1])
def test_initial_weights_are_orthogonal_p4(observation, gain):
    """W Wᵀ = gain² I (Wᵀ W if W has more rows than columns). Gains: √2, policy head `policy_gain`, value head 1."""
    values = initial(agent(OBSERVATIONS[observation], policy_gain=gain))
    gains = {"policy_head": gain, "value_head": 1.0}
    weights = {name.removesuffix(".weight"): value for name, value in values.items() if name.endswith(".weight")}
    assert weights.keys() > gains.keys()
    for name, value in weights.items():
        assert value.flags.c_contiguous, (
            f"{name} is not C-contiguous: PyTorch would transpose its gradient at every update"
        )
        flat = value.reshape(len(value), -1).astype(np.float64)
        square = flat @ flat.T if len(flat) <= flat.shape[1] else flat.T @ flat
        np.testing.assert_allclose(
            square, gains.get(name, np.sqrt(2)) ** 2 * np.eye(len(square)), atol=1e-5, err_msg=name
        )


# ---------------------------------------------------------------------------------------------------- parameter count
# SPEC P3: 8·8·4·32 + 32, 4·4·32·64 + 64, 3·3·64·64 + 64, 3136·512 + 512, 512·4 + 4, 512 + 1.
def test_nature_cnn_parameter_count_p3(zero_orthogonal_weights):
    """Counts the initial parameters. `build` checks that both frameworks have exactly these."""
    first, last = (
        agent(image(*shape), hidden=(), image_features=512, shared_torso=True) for shape in ((4, 84, 84), (84, 84, 4))
    )
    assert sum(value.size for value in initial(last).values()) == 1_686_693
    assert first.torso.convolutions() == last.torso.convolutions()


# ---------------------------------------------------------------------------------------------------- image layouts
def asymmetric_image(height, width):
    """Return an image without symmetry: brighter to the right and, less so, downwards; different in each channel."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    return ((x * 3 + y * 30 // 100 + c * 40) % 256).astype(np.uint8)[None]


@pytest.mark.parametrize("kind", ["torch", "jax"])
@pytest.mark.parametrize(("height", "width"), [(48, 36), (12, 9)])
def test_channels_first_and_last_give_same_outputs_p2(kind, height, width):
    """A transposed image gives different outputs."""
    last, first, turned = image(height, width, 3), image(3, height, width), image(width, height, 3)
    options = {"shared_torso": True, "policy_gain": 1.0}
    obs = asymmetric_image(height, width)
    values = initial(agent(last, **options))

    def outputs(space, obs):
        return tree_leaves(call(kind, build(kind, agent(space, **options), values), obs))

    one, other = outputs(last, obs), outputs(first, np.transpose(obs, (0, 3, 1, 2)))
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    if (height, width) == (12, 9):  # the transposed image has the same number of features
        on_its_side = outputs(turned, np.transpose(obs, (0, 2, 1, 3)))
        assert not np.allclose(one[-1], on_its_side[-1], atol=1e-3)
