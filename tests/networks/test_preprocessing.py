import numpy as np
import pytest
from learning_cases import PARTS, box

from duetto.networks.preprocessing import encode, image_warnings, is_image
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete


@pytest.fixture
def whole(array):
    """Integers of the framework, as a memory gives them."""
    kind = array(0.0)
    if isinstance(kind, np.ndarray):
        return np.asarray
    if type(kind).__module__ == "torch":
        import torch

        return torch.tensor
    import jax.numpy as jnp

    return jnp.asarray


def test_a_vector_stays(array):
    x = array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(encode(box(2), x), x)


def test_a_box_is_flattened_in_c_order(array):
    found = encode(box(2, 2), array([[[1, 2], [3, 4]]]))
    np.testing.assert_array_equal(found, [[1, 2, 3, 4]])


def test_a_number_is_a_vector_of_one(array):
    np.testing.assert_array_equal(encode(box(), array([5, 6])), [[5], [6]])


def test_bytes_become_float32(whole):
    found = encode(box(2, dtype="uint8"), whole(np.array([[0, 255]], np.uint8)))
    assert str(found.dtype).endswith("float32")
    np.testing.assert_array_equal(found, [[0, 255]])


def test_integers_are_one_hot(whole):
    found = encode(Discrete(3), whole(np.array([2, 0])))
    assert str(found.dtype).endswith("float32")
    np.testing.assert_array_equal(found, [[0, 0, 1], [1, 0, 0]])


def test_several_integers_are_one_hot_side_by_side(whole):
    np.testing.assert_array_equal(encode(MultiDiscrete((2, 3)), whole(np.array([[1, 0]]))), [[0, 1, 1, 0, 0]])


def test_parts_stand_side_by_side_in_the_spaces_order(whole, array):
    """The order of the space, which is sorted, and not of the observation's keys."""
    obs = {
        "where": array([[[1, 2], [3, 4]]]),
        "switches": whole(np.array([[0, 2]])),
        "goal": whole(np.array([1])),
    }
    found = encode(PARTS, obs)
    np.testing.assert_array_equal(found, [[0, 1, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4]])
    assert found.shape == (1, PARTS.size)


def test_a_sequence_keeps_its_leading_axes(whole, array):
    obs = {
        "where": array(np.zeros((4, 3, 2, 2))),
        "switches": whole(np.zeros((4, 3, 2), np.int64)),
        "goal": whole(np.zeros((4, 3), np.int64)),
    }
    assert encode(PARTS, obs).shape == (4, 3, 12)


def test_c14_jax_makes_no_ranks_equal_by_itself():
    """Learning runs with rank promotion set to raise; encoding has to live with it."""
    import jax
    import jax.numpy as jnp

    with jax.numpy_rank_promotion("raise"):
        encode(Discrete(3), jnp.array([2, 0]))
        encode(MultiDiscrete((2, 3)), jnp.array([[1, 0]]))
        with pytest.raises(ValueError, match="rank_promotion"):
            jnp.zeros(2) + jnp.zeros((2, 1))


def test_images():
    camera = box(3, 8, 8, dtype="uint8")
    assert is_image(camera)
    assert is_image(Dict((("camera", camera), ("speed", box(1)))))
    assert not any(map(is_image, (box(3), box(3, 8, 8), box(8, 8, dtype="uint8"), Discrete(3), PARTS)))


def test_what_seems_an_image_and_is_taken_as_a_vector_is_said():
    flat = Box((84, 84), "uint8", (0.0,), (255.0,))
    [sentence] = image_warnings(flat)
    assert sentence.startswith(
        "The observation, uint8 of shape (84, 84), looks like an image, but is treated as a vector of 7,056 "
    )
    camera = Dict((("camera", flat), ("image", Box((84, 84, 3), "uint8", (0.0,), (255.0,))), ("where", box(2))))
    [sentence] = image_warnings(camera)
    assert sentence.startswith("The observation camera, uint8 of shape (84, 84), looks")
    assert image_warnings(box(2)) == []
