"""Puts this folder's helpers on the path, and hands each test a framework to run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.fixture(params=["torch", "jax"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["numpy", "torch", "jax"])
def array(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Makes a float32 array of the framework from nested lists or NumPy."""
    if request.param == "torch":
        import torch

        return lambda values: torch.from_numpy(np.array(values, np.float32))
    if request.param == "jax":
        import jax.numpy as jnp

        return lambda values: jnp.asarray(values, jnp.float32)
    return lambda values: np.asarray(values, np.float32)
