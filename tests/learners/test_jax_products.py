"""Which library makes the products of JAX's programs: decided by the work, and really handed on to XLA."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from learning_cases import batch, build, small

from duetto.algorithms import DQN, R2D2, SAC, TD3, CrossQ
from duetto.learners import jax_products
from duetto.networks.encoding import is_image
from duetto.testing import conformance


@pytest.mark.parametrize(
    ("rows", "shapes", "eigen"),
    [
        (256, [(2, 400, 23), (2, 400), (2, 300, 400)], True),
        (128, [(300, 400)], True),
        (127, [(300, 400)], False),  # few rows
        (256, [(512, 23)], False),  # a wide layer
        (256, [(300, 512)], False),
        (256, [(600, 3, 511)], True),  # seeds and members are no layer's size
        (256, [()], True),  # a number that is learned
    ],
)
def test_rule(rows: int, shapes: list[tuple[int, ...]], eigen: bool):
    assert jax_products.by_eigen(rows, shapes) is eigen


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that programs of updates are compiled with, as JAX is given them."""
    seen: list[Any] = []
    jit = jax.jit

    def watched(function: Any, **how: Any) -> Any:
        if "compiler_options" in how:
            seen.append(how["compiler_options"])
        return jit(function, **how)

    monkeypatch.setattr(jax, "jit", watched)
    return seen


@pytest.mark.parametrize(
    ("how", "rows", "eigen"),
    [({}, 256, True), ({}, 64, False), ({"hidden": (512, 64)}, 256, False)],
    ids=["as measured", "few rows", "wide"],
)
def test_a_learner_asks_for_it(options: list[Any], how: dict[str, Any], rows: int, eigen: bool):
    learner = build("jax", small(TD3, **how))
    learner.update(batch(size=rows))
    assert options, "no program was compiled"
    assert set(map(bool, options)) == {eigen}
    assert not eigen or options[0] == jax_products.EIGEN


@pytest.mark.parametrize("instructions", [True, False])
def test_in_bfloat16_that_goes_by_the_instructions(options: list[Any], instructions: bool, monkeypatch: Any):
    """Without any, products are made in float32."""
    monkeypatch.setattr("duetto.learners.jax.multiplies_bfloat16", lambda: instructions)
    build("jax", small(TD3), precision="bf16").update(batch(size=256))
    assert set(map(bool, options)) == {not instructions}


@pytest.mark.parametrize(("kind", "eigen"), [(DQN, {False: True, True: False}), (R2D2, {False: False})])
def test_images_and_recurrent_networks_are_left_to_xla(
    kind: Any, eigen: dict[bool, bool], options: list[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jax_products, "ROWS", 1)
    monkeypatch.setattr(jax_products, "UNITS", 10_000)
    asked: dict[bool, set[bool]] = {}
    with conformance._trials(kind) as trials:
        first = {is_image(trial.observation): trial for trial in reversed(trials)}
        for image in eigen:
            options.clear()
            conformance._learner(first[image], "jax").update(first[image].batches(1)[0])
            asked[image] = set(map(bool, options))
    assert asked == {image: {expected} for image, expected in eigen.items()}


def test_xla_is_given_nothing_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch):
    jax_products.known.cache_clear()
    monkeypatch.setattr(jax_products, "EIGEN", {"xla_no_such_option": ""})
    assert not jax_products.known()
    jax_products.known.cache_clear()
    monkeypatch.undo()
    assert jax_products.known()


def test_who_names_the_option_has_their_own_way(options: list[Any], monkeypatch: pytest.MonkeyPatch):
    jax_products.known.cache_clear()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_DOT")
    assert not jax_products.known()
    build("jax", small(TD3)).update(batch(size=256))
    assert not any(options)
    jax_products.known.cache_clear()


@pytest.mark.parametrize("kind", [TD3, SAC, CrossQ])
def test_parity_with_eigen(kind: Any, options: list[Any], monkeypatch: pytest.MonkeyPatch):
    """The small batches of the other tests are products of YNNPACK's."""
    monkeypatch.setattr(jax_products, "ROWS", 1)
    conformance.check_parity(kind)
    assert options
    assert all(options)
