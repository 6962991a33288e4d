"""Several learners that have equal shares of each batch are one learner, to rounding, and know when they are not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from share_cases import CASES, NEAR, Case, distances, same

from duetto import learners
from duetto.algorithms import ALGORITHMS
from duetto.errors import DuettoError, PartLostError, UsageError
from duetto.functional import shares
from duetto.functional.policy_gradient import normalized, weighted_mean
from duetto.learners import dealing, ranks, torch_ranks
from duetto.learners.torch_ranks import TorchRanks


class Kept(ranks.Process):
    """A process that learner after learner is made in: to start one takes seconds."""

    def close(self) -> None:
        """Not yet."""

    def end(self) -> None:
        super().close()


@pytest.fixture(scope="module")
def process() -> Iterator[Kept]:
    kept = Kept(b"")  # of nothing: it says so
    assert "EOFError" in kept.receive(ranks.TO_START).failure
    yield kept
    kept.end()


@pytest.fixture
def two(process: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(rank: int, made_of: bytes) -> Kept:
        process.send("make", made_of)
        return process

    monkeypatch.setattr(torch_ranks, "here", start)


def assert_near(distances: dict[str, float]) -> None:
    assert distances.pop("reported") < 10 * NEAR
    assert {what: distance for what, distance in distances.items() if distance > NEAR} == {}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("two")
def test_two_learners_are_one_and_the_same_bits_again(name: str):
    case = Case(name)
    one = case.taught(case.build("torch"))
    found = case.taught(case.build("torch", ranks=2))
    assert_near(distances(one, found))
    assert same(found, case.taught(case.build("torch", ranks=2)))


def test_two_devices_are_one_and_the_same_bits_again():
    """JAX counts its devices once in a process, so this is one of its own."""
    names = ["td3", "ppo", "sac", "r2d2"]
    script = Path(__file__).with_name("share_cases.py")
    done = subprocess.run([sys.executable, script, *names], capture_output=True, text=True, check=True)
    for found in json.loads(done.stdout).values():
        assert_near(found["far"])
        assert found["same"]
        assert found["devices"] == 2
