import numpy as np
import pytest
from learning_cases import PARTS, box

from duetto.networks.preprocessing import encode, image_warnings, is_image
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete


@pytest.fixture(params=["numpy", "torch", "jax"])
def same_dtype_array(request):
    """Make an array of the framework with the same dtype."""
    if request.param == "numpy":
        return np.asarray
    return pytest.importorskip("torch").tensor if request.param == "torch" else pytest.importorskip("jax.numpy").asarray


@pytest.mark.parametrize(
    ("space", "obs", "expected"),
    [
        (box(2), np.float32([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (box(2, 2), np.float32([[[1, 2], [3, 4]]]), [[1, 2, 3, 4]]),  # in C order
        (box(), np.float32([5, 6]), [[5], [6]]),
        (box(2, dtype="uint8"), np.uint8([[0, 255]]), [[0, 255]]),
        (Discrete(3), np.array([2, 0]), [[0, 0, 1], [1, 0, 0]]),
        (MultiDiscrete((2, 3)), np.array([[1, 0]]), [[0, 1, 1, 0, 0]]),
    ],
    ids=["vector", "matrix", "scalar", "uint8", "discrete", "multi-discrete"],
)
def test_observations_become_rows_of_float32(same_dtype_array, space, obs, expected):
    found = encode(space, same_dtype_array(obs))
    assert str(found.dtype).endswith("float32")
    np.testing.assert_array_equal(found, expected)


def test_dict_parts_are_concatenated_in_space_order(same_dtype_array):
    """The order is that of the space (sorted), not that of the observation's keys. Leading axes are kept."""
    obs = {"where": np.float32([[[1, 2], [3, 4]]]), "switches": np.array([[0, 2]]), "goal": np.array([1])}
    found = encode(PARTS, {name: same_dtype_array(part) for name, part in obs.items()})
    np.testing.assert_array_equal(found, [[0, 1, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4]])
    sequences = {name: same_dtype_array(np.zeros((4, 3, *part.shape[1:]), part.dtype)) for name, part in obs.items()}
    assert encode(PARTS, sequences).shape == (4, 3, 12)


def test_is_image_requires_uint8_and_three_axes():
    camera = box(3, 8, 8, dtype="uint8")
    assert is_image(camera)
    assert is_image(Dict((("camera", camera), ("speed", box(1)))))
    assert not any(map(is_image, (box(3), box(3, 8, 8), box(8, 8, dtype="uint8"), Discrete(3), PARTS)))


def test_vector_that_looks_like_image_gets_warning():
    flat = Box((84, 84), "uint8", (0.0,), (255.0,))
    [sentence] = image_warnings(flat)
    assert sentence.startswith(
        "The observation, uint8 of shape (84, 84), looks like an image, but is treated as a vector of 7,056 "
    )
    camera = Dict((("camera", flat), ("image", Box((84, 84, 3), "uint8", (0.0,), (255.0,))), ("where", box(2))))
    [sentence] = image_warnings(camera)
    assert sentence.startswith("The observation camera, uint8 of shape (84, 84), looks")
    assert image_warnings(box(2)) == []
