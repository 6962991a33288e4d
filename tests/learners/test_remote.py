"""JAX's learners in processes of their own are one learner, to rounding, and the run outlives each of them."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from share_cases import NEAR, UPDATES, Case, distances, same
from test_ranks import gone

from duetto.errors import CheckpointError, DuettoError, PartLostError, UsageError
from duetto.learners import acting, ranks
from duetto.learners.behind import Behind
from duetto.learners.ranks import Meeting, ThisMachine
from duetto.learners.remote import Found, RemoteLearner, _check_names

pytest.importorskip("jax")
AGAIN = 10  # updates: what each reports follows from all before it
FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # each process compiles


def build(case: Case) -> RemoteLearner:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}")
        return cast(RemoteLearner, case.build("jax", ranks=2, machines=ThisMachine()))


def check_one_and_the_same_bits_again(name: str) -> None:
    case = Case(name)
    many = build(case)
    begun = many.state_dict()
    found = case.taught(many)
    many.load_state_dict(begun)
    again = case.taught(many, range(AGAIN))["reported"]
    many.close()
    assert all(np.array_equal(a, b) for a, b in zip(again, found["reported"][:AGAIN], strict=True))
    far = distances(case.taught(case.build("jax")), found)
    assert far.pop("reported") < 10 * NEAR
    assert {what: distance for what, distance in far.items() if distance > NEAR} == {}


@pytest.mark.parametrize("name", ["ppo", "sac", "r2d2"])
def test_two_processes_are_one_and_the_same_bits_again(name: str):
    check_one_and_the_same_bits_again(name)


# ---------------------------------------------------------------------------------------------- one pair
@pytest.fixture(scope="module")
def case() -> Case:
    return Case("td3")


@pytest.fixture(scope="module")
def kept(case: Case) -> Iterator[RemoteLearner]:
    """To start processes and to compile takes seconds."""
    found = build(case)
    yield found
    found.close()


@pytest.fixture
def pair(kept: RemoteLearner, case: Case, monkeypatch: pytest.MonkeyPatch) -> RemoteLearner:
    monkeypatch.setattr(ranks, "TIMEOUT", 100.0)
    kept.load_state_dict(case.build("torch").state_dict())
    kept._beside = None
    return kept


def test_they_are_one_and_go_on_with_the_same_bits(case: Case, pair: RemoteLearner):
    half = UPDATES // 2
    first = case.taught(pair, range(half))
    second = case.taught(pair, range(half, UPDATES))
    found = second | {"reported": first["reported"] + second["reported"]}
    pair.load_state_dict(first)
    assert same(second, case.taught(pair, range(half, UPDATES)))
    far = distances(case.taught(case.build("jax")), found)
    assert far.pop("reported") < 10 * NEAR
    assert {what: distance for what, distance in far.items() if distance > NEAR} == {}


def test_who_acts_has_the_newest_parameters(case: Case, pair: RemoteLearner):
    host, obs = acting.HostActing(case.algorithm, pair.specs), case.batches[0].obs
    before = pair.act(obs)
    case.taught(pair, range(2))
    host.load(pair.parameters())
    assert np.array_equal(pair.act(obs), host.act(obs))
    assert not np.array_equal(pair.act(obs), before)
    pair.load_parameters(case.build("torch").parameters())
    assert np.array_equal(pair.act(obs), before)


def test_updates_behind_their_caller(case: Case, pair: RemoteLearner):
    """A thread waits for them; the numbers are the same, and who acts behind has those of the step before."""
    begun = pair.state_dict()
    first = case.taught(pair, range(AGAIN))
    expected = pair.act(case.batches[0].obs)
    pair.load_state_dict(begun)
    behind = Behind(pair)
    reported = case.taught(pair, range(AGAIN))
    assert same(first, reported)
    behind.catch_up()
    pair.update(case.batches[1])
    assert np.array_equal(behind.act(case.batches[0].obs), expected)


def test_parameters_of_other_networks(case: Case, pair: RemoteLearner):
    """All refuse them, and serve on."""
    other = pair.parameters()
    del other["actor"]["layers.0.bias"]
    with pytest.raises(CheckpointError, match="The parameters of actor do not fit this network: missing"):
        pair.load_parameters(other)
    pair.load_parameters(case.build("torch").parameters())
    assert len(case.taught(pair, range(2))["reported"]) == 2


def test_a_rank_with_other_parameters_is_found(case: Case, pair: RemoteLearner):
    case.taught(pair, range(2))
    parameters = pair.parameters()
    parameters["actor"]["layers.0.bias"][3] = np.nextafter(parameters["actor"]["layers.0.bias"][3], 1)
    pair._ranks.ask(1, "take", "parameters", parameters, pair._made)
    with pytest.raises(DuettoError, match="Learner 1 of 2 has other parameters than learner 0"):
        pair.state_dict()


# ---------------------------------------------------------------------------------------------- who dies
def line(found: RemoteLearner, rank: int) -> Any:
    return found._ranks._lines[rank]


def test_one_that_hangs_is_given_up(case: Case, pair: RemoteLearner, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranks, "TIMEOUT", 1.0)
    os.kill(line(pair, 1).pid, signal.SIGSTOP)
    with pytest.raises(PartLostError, match=r"^Learner 1 of 2 does not answer for 1 s\.$"):
        pair.state_dict()
    os.kill(line(pair, 1).pid, signal.SIGCONT)
    line(pair, 1).receive(5)  # and the pair serves others


def test_a_rank_that_is_killed_is_known_at_once_and_nothing_is_left(case: Case, pair: RemoteLearner):
    """The other one waits for what it would add. This is the pair's last test."""
    pids = [line(pair, rank).pid for rank in range(2)]
    os.kill(pids[1], signal.SIGTERM)  # the end of a job reaches every process of it; it is not theirs
    pair.update(case.batches[0])
    began = time.monotonic()
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(PartLostError, match=r"^Learner 1 of 2 is gone \(its process was killed by signal 9\)\.$"):
        pair.update(case.batches[1])
    pair.close()
    assert time.monotonic() - began < 5
    assert all(map(gone, pids))


@pytest.fixture
def own(case: Case) -> Iterator[RemoteLearner]:
    found = build(case)
    yield found
    found.close()


def end_all(found: RemoteLearner, until: float) -> None:
    while not all(gone(line(found, rank).pid) for rank in range(2)):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_ranks_end_with_the_run_and_without_a_word(capfd: pytest.CaptureFixture[str], own: RemoteLearner):
    """However that ends: their pipes do. A rank that saw rank 0 end first would be ended by JAX, with a lot to say."""
    # capfd comes first: what processes print goes where it went when they began
    for rank in range(2):
        line(own, rank)._outbox.put(b"")  # the end of its pipe
    end_all(own, time.monotonic() + 5)
    assert capfd.readouterr() == ("", "")


def test_rank_0_takes_the_others_along_and_is_to_blame(case: Case, own: RemoteLearner):
    os.kill(line(own, 0).pid, signal.SIGKILL)
    end_all(own, time.monotonic() + 10)  # JAX ends the other
    with pytest.raises(PartLostError, match=r"^Learner 0 of 2 is gone \(its process was killed by signal 9\)\.$"):
        own.update(case.batches[0])


# ---------------------------------------------------------------------------------------------- who is blamed
class Told:
    """A line with answers of its own."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.closed = list(answers), 0.0

    def send(self, *message: Any) -> None:
        pass

    def receive(self, timeout: float) -> ranks.Receipt:
        if not self.answers:
            time.sleep(timeout)
            raise TimeoutError
        answer = self.answers[0] if isinstance(self.answers[0], Exception) else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = time.monotonic()


class Given:
    host = ""

    def __init__(self, *lines: Told) -> None:
        self._lines = lines

    def start(self, rank: int, made_of: bytes) -> Told:
        return self._lines[rank]


DIED = ranks.GoneError("died")
APART = ranks.Receipt(-1, failure="Traceback\nduetto.learners.ranks.ApartError: Gloo: closed")
WRONG = ranks.Receipt(-1, failure="Traceback\nTypeError: no")
DONE = ranks.Receipt(3)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (((APART,), (DONE,), (DIED,)), "Learner 2 of 3 died."),
        (((DIED,), (DIED,), (DIED,)), "Learner 0 of 3 died."),  # it takes the others along
        (((APART,), (), (WRONG,)), "Learner 2 of 3 failed: TypeError: no."),  # whom the second waits for
        (((APART,), (APART,), ()), "Learner 2 of 3 does not answer."),
        (((), (DONE,), ()), "Learners 0, 2 of 3 do not answer for 1 s."),
        (((APART,), (APART,), (APART,)), "Learner 0 of 3 failed: duetto.learners.ranks.ApartError: Gloo: closed."),
    ],
)
def test_who_is_to_blame(lines: tuple[tuple[Any, ...], ...], said: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranks, "TO_END", 0.5)
    told = [Told(*answers) for answers in lines]
    found = ranks.Ranks([b""] * 3, Given(*told), first=0)
    with pytest.raises(PartLostError) as raised:
        found.gather(3, 1.0)
    assert str(raised.value) == said
    found.close()
    assert told[0].closed > told[1].closed > told[2].closed  # while rank 0 is there, nobody says a word


def test_machines_whose_names_lead_nowhere():
    there = Found(Meeting("10.0.0.2", 1), "there", lonely=False)
    _check_names([there, there])
    with pytest.raises(UsageError, match="would have to reach here, whose own name leads to an address that only"):
        _check_names([there, Found(Meeting("10.0.0.1", 1), "here", lonely=True)])


def test_a_port_is_kept_until_ranks_meet_there():
    """And nobody else on this machine is given it."""
    from duetto.learners.jax_share import JaxRank

    rank: Any = JaxRank(cast(Any, None), 0)
    found: Found = rank.where("").value
    assert found.meeting.address == "127.0.0.1"
    assert found.machine == socket.gethostname()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(found.meeting)
    rank._port.close()
