import numpy as np
import pytest
from learning_cases import PARTS, box

from duetto.networks.preprocessing import encode, image_warnings, is_image
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete


@pytest.fixture(params=["numpy", "torch", "jax"])
def exactly(request):
    """Makes an array of the framework, of the same dtype."""
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
    ids=["vector", "matrix", "number", "bytes", "integer", "integers"],
)
def test_observations_become_rows_of_float32(exactly, space, obs, expected):
    found = encode(space, exactly(obs))
    assert str(found.dtype).endswith("float32")
    np.testing.assert_array_equal(found, expected)


def test_parts_stand_side_by_side_in_the_spaces_order(exactly):
    """The order of the space, which is sorted, and not of the observation's keys. Leading axes stay."""
    obs = {"where": np.float32([[[1, 2], [3, 4]]]), "switches": np.array([[0, 2]]), "goal": np.array([1])}
    found = encode(PARTS, {name: exactly(part) for name, part in obs.items()})
    np.testing.assert_array_equal(found, [[0, 1, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4]])
    sequences = {name: exactly(np.zeros((4, 3, *part.shape[1:]), part.dtype)) for name, part in obs.items()}
    assert encode(PARTS, sequences).shape == (4, 3, 12)


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
