"""Runs with several learners: what is killed goes on exactly, and what cannot be is refused at once."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_runs import StopAt, assert_same, checkpoints, outcome, small, train
from test_resume import check_killed_anywhere

from duetto.algorithms import TD3
from duetto.errors import PartLostError, UsageError
from duetto.learners import ranks
from duetto.learners.rank import Making
from duetto.learners.ranks import ThisMachine, packed
from duetto.learners.torch_ranks import TorchRanks
from duetto.networks.spaces import Box
from duetto.runs.run import Run
from duetto.storage.config import Config, RunOptions
from duetto.storage.origin import from_file
from duetto.training.place import Here
from duetto.training.resuming import notes_of_run, run_state
from duetto.training.session import Session

VECTOR = Box((3,), "float32", (-1.0,) * 3, (1.0,) * 3)
ACTION = Box((1,), "float32", (-1.0,), (1.0,))
RUN: dict[str, Any] = {"steps": 120, "evaluate_every": 0, "learners": 2}


class Kills:
    """The second learner, at this step."""

    def __init__(self, step: int) -> None:
        self.step, self.done = step, False

    def __call__(self, session: Session) -> None:
        if session.step >= self.step and not self.done:
            self.done = True
            learner: Any = session.learner
            os.kill(learner._others._lines[1].pid, signal.SIGKILL)


def test_the_run_is_killed(tmp_path: Path):
    check_killed_anywhere(tmp_path, **RUN)


NOISY = """
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import duetto


class Noise(NamedTuple):
    next: np.ndarray


@dataclass(frozen=True)
class Noisy(duetto.TD3):
    def draw(self, random, batch):
        return Noise(super().draw(random, batch))

    def critic_loss(self, nets, batch, noise):
        return super().critic_loss(nets, batch, noise.next)
"""


def test_noise_of_a_class_in_the_algorithms_file_reaches_the_others(tmp_path: Path):
    (tmp_path / "noisy.py").write_text(NOISY)
    kind, origin = from_file(tmp_path / "noisy.py", "Noisy")
    origin.let_travel(kind)
    options = {name: getattr(small(), name) for name in small().options()}
    run = train(tmp_path, kind(**options), **RUN)
    assert run.metrics()[-1]["learn/updates"] > 0


def test_what_cannot_be_read_there_says_why():
    """Not by an end without a word, from which the run would begin again and again."""
    line: Any = ThisMachine().start(1, packed(("torch", Making(TD3(), VECTOR, ACTION, 0, "cpu", "float32", 1), 1)))
    try:
        line.receive(60.0)
        line._outbox.put(b"no pickle")
        assert "UnpicklingError" in line.receive(60.0).failure
    finally:
        line.close()


def test_a_learner_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """All return to the newest checkpoint, and no number is another than without it."""
    ppo = small("ppo")
    undisturbed = train(tmp_path / "undisturbed", ppo, **RUN)
    with caplog.at_level(logging.WARNING, "duetto"):
        run = train(tmp_path, ppo, callbacks=[Kills(90)], **RUN)
    assert_same(run, undisturbed)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "Learner 1 of 2 is gone (its process was killed by signal 9). The run goes on from its checkpoint of step 80."
    ]


def test_learners_that_cannot_begin(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """A new run ends before it has a folder; one that goes on tries three times more, and says so."""
    whole, run = (train(tmp_path, name=name, **RUN) for name in ("whole", "run"))
    whole.resume(140)
    failures = tmp_path / "failures"
    fails = f"left = int(open({str(failures)!r}).read()); open({str(failures)!r}, 'w').write(str(left - 1))"
    monkeypatch.setattr(ranks, "_START", f"{fails}\nif left > 0: raise SystemExit(3)\n{ranks._START}")
    failures.write_text("1")
    with pytest.raises(PartLostError, match=r"The 2 learners could not begin\. Learner 1 of 2 is gone"):
        train(tmp_path, name="none", **RUN)
    assert not (tmp_path / "none").exists()
    failures.write_text("2")
    with caplog.at_level(logging.WARNING, "duetto"):
        run.resume(140)
    assert_same(whole, run)
    assert failures.read_text() == "-1"
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("The 2 learners could not begin. ")
    assert said.endswith(" The run goes on from its checkpoint of step 120.")


def test_a_run_goes_on_with_another_number(tmp_path: Path):
    """It is said; and nothing else in a checkpoint tells how many made it."""
    short = RUN | {"steps": 60}
    run = train(tmp_path, small(), **short)
    text = (run.path / "config.yaml").read_text()
    assert "\n  learners: 2\n" in text
    (run.path / "config.yaml").write_text(text.replace("\n  learners: 2\n", "\n  learners: 1\n"))
    said: list[str] = []
    Run(run.path).resume(80, on_start=lambda session: said.extend(session.notices))
    assert said == [
        "The checkpoint was made with 2 learners, and the run goes on with 1: from here its numbers may differ in "
        "their last bits from those of a run that was never interrupted. With --learners 2 (learners=2) they are the "
        "same."
    ]
    alone = train(tmp_path / "alone", small(), **short | {"learners": 1})
    states = [outcome(one)["state"] for one in (Run(run.path), alone)]
    assert states[0].keys() == states[1].keys()
    assert states[0]["learner"].keys() == states[1]["learner"].keys()
    assert "learners" not in states[0]["run"]


def test_one_goes_on_with_two_and_back(tmp_path: Path):
    """The numbers are those of one to rounding, and both changes are said."""
    short = RUN | {"steps": 80, "learners": 1}
    undisturbed = train(tmp_path / "undisturbed", small(), **short)
    run, said = train(tmp_path, small(), callbacks=[StopAt(50)], **short), list[str]()
    for number, until in ((2, 65), (1, 80)):
        run = Run(run.path)
        run.resume(
            learners=number, callbacks=[StopAt(until)], on_start=lambda session: said.append(session.notices[-1])
        )
        assert Run(run.path).config.run.learners == number
    assert [sentence.partition(":")[0] for sentence in said] == [
        "The checkpoint was made with 1 learner, and the run goes on with 2",
        "The checkpoint was made with 2 learners, and the run goes on with 1",
    ]
    states = [checkpoints(one).load_latest().state for one in (run, undisturbed)]
    assert [state["learner"]["updates"] for state in states] == [50, 50]
    for network, arrays in states[0]["learner"]["parameters"].items():
        for name, array in arrays.items():
            other = states[1]["learner"]["parameters"][network][name]
            np.testing.assert_allclose(array, other, rtol=1e-3, atol=1e-5, err_msg=f"{network}/{name}")


@pytest.mark.parametrize("remote", [True, False])
def test_learners_of_jax_that_were_elsewhere(remote: bool):
    """Devices and processes act and add up in ways of their own."""
    saved = {"learners": 2} | ({} if remote else {"remote": True})
    now: Any = SimpleNamespace(threads=0, seeds=1, ranks=2, remote=remote)
    [said] = notes_of_run(saved, now, 0)
    was, becomes = ("devices of one process", "processes of a cluster")[:: 1 if remote else -1]
    assert said.startswith(f"The checkpoint was made with learners that were {was}, and now they are {becomes}: from")
    assert said.endswith(f"{'Without' if remote else 'With'} --cluster they are the same.")
    assert notes_of_run({"learners": 2} | ({"remote": True} if remote else {}), now, 0) == []
    assert len(notes_of_run({}, now, 0)) == 1  # their number says it
    config = Config(small(), "Pendulum-v1", RunOptions())
    assert run_state(config, now).get("remote", False) == remote


def test_learners_without_a_cluster_are_devices_in_jax():
    stepper: Any = None
    torch, jax = (Config(small(), "Pendulum-v1", RunOptions(backend=name, learners=2)) for name in ("torch", "jax"))
    assert isinstance(Here().machines(torch, stepper), ThisMachine)
    assert Here().machines(jax, stepper) is None


def test_a_number_that_cannot_be_leaves_the_run_as_it_was(tmp_path: Path):
    run = train(tmp_path, small(), **RUN | {"steps": 40, "learners": 1})
    before = (run.path / "config.yaml").read_bytes()
    for number, sentence in ((3, r"dealt to 3 learners .* \(--learners\): 1, 2, 4, 8, 16"), (0, "learners is 0")):
        with pytest.raises(UsageError, match=sentence):
            run.resume(60, learners=number)
    assert (run.path / "config.yaml").read_bytes() == before
    assert run.resume(60).config.run.learners == 1


@pytest.mark.parametrize(
    ("algorithm", "options", "said"),
    [
        ("td3", {"learners": 3}, "16 rows (batch_size), which cannot be dealt to 3 learners"),
        ("ppo", {"learners": 3}, "8 rows (16 of a rollout in 2 minibatches), which cannot be dealt to 3 learners"),
        ("crossq", {"learners": 2}, "which each of several PyTorch learners has a share only"),
        ("td3", {"learners": 2, "seeds": (0, 1)}, "Seeds side by side are computed in one program"),
        ("td3", {"learners": 0}, "learners is 0; it must be at least 1"),
    ],
)
def test_refused_before_anything_is_written(tmp_path: Path, algorithm: str, options: dict[str, Any], said: str):
    with pytest.raises(UsageError) as raised:
        train(tmp_path, small(algorithm), **options)
    assert said in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_jax_that_has_begun_with_fewer_devices(tmp_path: Path):
    jax = pytest.importorskip("jax")
    many = len(jax.devices("cpu")) + 1
    with pytest.raises(UsageError, match=r"JAX has begun in this process with \d+ CPU devices?, too few for"):
        train(tmp_path, small(batch_size=16 * many), backend="jax", learners=many)
    assert list(tmp_path.iterdir()) == []


def test_a_session_that_cannot_be_made_leaves_no_learner_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What acts one update behind refuses rollouts when the learners are there already."""
    closed: list[object] = []
    close = TorchRanks.close
    monkeypatch.setattr(TorchRanks, "close", lambda ranks: (closed.append(ranks), close(ranks)))
    with pytest.raises(UsageError, match=r"act.behind"):
        train(tmp_path, small("ppo"), **RUN, act_behind=True)
    assert len(closed) == 1
