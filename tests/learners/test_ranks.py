"""Several learners that have equal shares of each batch are one learner, to rounding, and know when they are not."""

from __future__ import annotations

import io
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from share_cases import CASES, NEAR, UPDATES, Case, distances, same

from duetto.algorithms import ALGORITHMS
from duetto.errors import DuettoError, PartLostError, UsageError
from duetto.learners import dealing, ranks
from duetto.learners.torch_ranks import TorchRanks
from duetto.networks.specs import CustomNetwork

AGAIN = 30  # updates: what each reports follows from all before it


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
    def start(self: ranks.ThisMachine, rank: int, made_of: bytes) -> Kept:
        process.send("make", made_of)
        return process

    monkeypatch.setattr(ranks.ThisMachine, "start", start)


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
    again = case.taught(case.build("torch", ranks=2), range(AGAIN))["reported"]
    assert all(np.array_equal(a, b) for a, b in zip(again, found["reported"][:AGAIN], strict=True))


@pytest.mark.parametrize("names", [("td3", "ppo"), pytest.param(("sac", "r2d2"), marks=pytest.mark.slow)])
def test_two_devices_are_one_and_the_same_bits_again(names: tuple[str, ...]):
    """JAX counts its devices once in a process, so this is one of its own."""
    script = Path(__file__).with_name("share_cases.py")
    done = subprocess.run([sys.executable, script, *names], capture_output=True, text=True, check=True)
    for found in json.loads(done.stdout).values():
        assert_near(found["far"])
        assert found["same"]
        assert found["devices"] == 2


@pytest.fixture
def case() -> Case:
    return Case("td3")


@pytest.mark.usefixtures("two")
def test_what_one_learner_has_others_go_on_with(case: Case):
    """In two goes, of which the second begins with another number; and back."""
    one, half = case.build("torch"), range(UPDATES // 2)
    first, found = case.taught(one, half), case.build("torch", ranks=2)
    case.taught(found, range(3))
    found.load_state_dict(first)
    rest = range(UPDATES // 2, UPDATES)
    assert_near(distances(case.taught(one, rest), case.taught(found, rest)))
    alone = case.build("torch")
    alone.load_state_dict(found.state_dict())  # there is nothing of their number in it
    assert alone.updates == UPDATES


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("until", ["a checkpoint", "the hundredth update"])
def test_a_rank_with_other_parameters_is_found(case: Case, process: Kept, until: str):
    found = case.build("torch", ranks=2)
    case.taught(found, range(10))
    parameters = found.parameters()
    parameters["actor"]["layers.0.bias"][3] = np.nextafter(parameters["actor"]["layers.0.bias"][3], 1)
    process.send("take", parameters, found.optimizer_state(), 10)
    assert not process.receive(5).failure
    with pytest.raises(DuettoError, match=r"Learner 1 of 2 has other parameters than learner 0 after \d+ updates"):
        found.state_dict() if until == "a checkpoint" else case.taught(found, range(10, 150))
    assert found.updates == (10 if until == "a checkpoint" else 100)


@pytest.mark.usefixtures("two")
def test_a_rank_that_has_missed_an_update_is_found(case: Case, process: Kept):
    found = case.build("torch", ranks=2)
    case.taught(found, range(3))
    process.send("counted")
    process.receive(5)
    with pytest.raises(DuettoError, match="has made other updates than learner 0"):
        case.taught(found, range(1))


def listening() -> set[str]:
    """Addresses at which this process does."""
    own = {str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()}
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/self/net/{name}").read_text().splitlines()]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}


class Reached:
    """Where ranks come from, as if from another machine."""

    def __init__(self, process: Kept, host: str = "127.0.0.1") -> None:
        self._process, self.host = process, host

    def start(self, rank: int, made_of: bytes) -> Kept:
        self._process.send("make", made_of)
        return self._process


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="looks for sockets in /proc")
def test_ranks_listen_where_they_are_reached_and_nowhere_else(case: Case, process: Kept):
    before = listening()
    found = case.build("torch", ranks=2, machines=Reached(process))
    assert listening() - before <= {"0100007F"}
    assert "0100007F" in listening()
    case.taught(found, range(2))
    with pytest.raises(UsageError, match=r"this process at 203\.0\.113\.1, where it cannot listen \(Cannot"):
        case.build("torch", ranks=2, machines=Reached(process, "203.0.113.1"))


@pytest.mark.usefixtures("two")
def test_where_ranks_meet_stays_until_they_part(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """NCCL may look there again."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = case.build("torch", ranks=2)
    assert [path.name for path in tmp_path.glob("duetto-learners-*/*")] == ["met"]
    found.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("two")
def test_an_update_behind_its_caller(case: Case):
    """A thread makes them; the numbers are the same."""
    first = case.taught(case.build("torch", ranks=2), range(20))
    beside = case.build("torch", ranks=2)
    beside.learn_beside()
    assert same(first, case.taught(beside, range(20)))


# ---------------------------------------------------------------------------------------------- who dies
def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.fixture
def own(case: Case) -> Iterator[TorchRanks]:
    """Learners of which the second has a process of its own."""
    found: Any = case.build("torch", ranks=2)
    case.taught(found, range(2))
    yield found
    found.close()


def pid(found: Any) -> int:
    return found._others._lines[1].pid


def test_a_rank_that_is_killed_is_known_at_once(case: Case, own: TorchRanks):
    os.kill(pid(own), signal.SIGINT)  # Ctrl-C reaches all processes of a terminal; it is not theirs
    os.kill(pid(own), signal.SIGTERM)
    case.taught(own, range(2))
    began = time.monotonic()
    os.kill(pid(own), signal.SIGKILL)
    with pytest.raises(PartLostError, match=r"^Learner 1 of 2 is gone \(its process was killed by signal 9\)\.$"):
        case.taught(own)
    assert time.monotonic() - began < 5


def test_a_rank_that_fails_says_why(case: Case, own: TorchRanks):
    own._others.send("share", 0, None, None, None, None)
    with pytest.raises(PartLostError, match=r"Learner 1 of 2 failed: .*NoneType") as raised:
        own._others.receive(3)
    assert "Traceback" in raised.value.__notes__[0]
    number = pid(own)
    own.close()
    assert gone(number)


@pytest.mark.usefixtures("two")
def test_a_rank_that_fails_is_not_waited_for(case: Case, monkeypatch: pytest.MonkeyPatch):
    """What it would have added never comes; and it serves on."""
    monkeypatch.setattr(ranks, "TIMEOUT", 10.0)
    found: Any = case.build("torch", ranks=2)
    case.taught(found, range(2))
    nothing = ("share", 0, None, None, None, None)
    monkeypatch.setattr(found._others, "send_each", lambda messages: found._others.send(*nothing))
    began = time.monotonic()
    with pytest.raises(PartLostError, match=r"^Learner 1 of 2 failed: .*NoneType"):
        case.taught(found, range(2))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("before", [0, 2], ids=["a receipt", "a sum"])
def test_a_rank_that_hangs_is_given_up(case: Case, before: int, monkeypatch: pytest.MonkeyPatch):
    """Its receipt is waited for, or what it adds."""
    monkeypatch.setattr(ranks, "TIMEOUT", 2.0)
    found: Any = case.build("torch", ranks=2)
    case.taught(found, range(before))
    os.kill(pid(found), signal.SIGSTOP)
    with pytest.raises(PartLostError, match=r"^Learner 1 of 2 (does not answer|has not answered for 2 s)\.$"):
        case.taught(found, range(2))
    found.close()


def test_nobody_waits_for_a_rank_to_read(own: TorchRanks, monkeypatch: pytest.MonkeyPatch):
    """One that is stopped reads no more than its pipe holds."""
    monkeypatch.setattr(ranks, "TIMEOUT", 1.0)
    os.kill(pid(own), signal.SIGSTOP)
    end = threading.Timer(5, os.kill, (pid(own), signal.SIGKILL))  # of the test, if it hangs
    end.start()
    own._others.send("take", np.zeros(2**20))
    with pytest.raises(PartLostError, match=r"^Learner 1 of 2 has not answered for 1 s\.$"):
        own._others.receive(2)
    end.cancel()


def test_a_rank_that_cannot_begin(case: Case, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranks, "_START", "raise SystemExit(3)")
    with pytest.raises(PartLostError) as raised:
        case.build("torch", ranks=2)
    assert str(raised.value) == (
        "The 2 learners could not begin. Learner 1 of 2 is gone (its process ended with exit code 3)."
    )


@pytest.mark.usefixtures("two")
def test_two_ranks_on_one_gpu(case: Case, monkeypatch: pytest.MonkeyPatch):
    """Ray does not know which one the run itself has."""
    receive = Kept.receive
    monkeypatch.setattr(Kept, "receive", lambda *a: receive(*a)._replace(gpu=ranks.Gpu("here", "GPU-2")))
    monkeypatch.setattr(TorchRanks, "gpu", lambda self: ranks.Gpu("here", "GPU-1"))
    assert case.build("torch", ranks=2).ranks == 2
    monkeypatch.setattr(TorchRanks, "gpu", lambda self: ranks.Gpu("here", "GPU-2"))
    with pytest.raises(UsageError, match=r"^Learners 0 and 1 of 2 have the same GPU of here: learner 0 is the run's"):
        case.build("torch", ranks=2)


SCRIPT = """
import sys, time
sys.path[:0] = [{tests!r}]
from share_cases import Case
found = Case("td3").build("torch", ranks=2)
print(found._others._lines[1].pid, flush=True)
time.sleep(100)
"""


def test_no_rank_outlives_its_parent():
    script = SCRIPT.format(tests=str(Path(__file__).parent))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())  # and there is nothing else on it
        parent.kill()
    until = time.monotonic() + 5
    while not gone(number):
        assert time.monotonic() < until
        time.sleep(0.05)


# ---------------------------------------------------------------------------------------------- who is refused
def refused(number: int, backend: str = "torch", num_envs: int = 1, algorithm: str = "td3", **options: Any) -> str:
    case = ALGORITHMS[algorithm](**options)
    with pytest.raises(UsageError) as raised:
        dealing.check(case, Case("td3").observation, Case("td3").action, number, num_envs, backend)
    return str(raised.value)


def test_shares_that_do_not_come_out_even():
    assert refused(3, batch_size=8) == (
        "A batch has 8 rows (batch_size), which cannot be dealt to 3 learners in equal shares. Give another number of "
        "them (--learners): 1, 2, 4, 8."
    )
    ppo = {"algorithm": "ppo", "rollout_steps": 6, "minibatches": 4, "num_envs": 6}
    assert refused(2, **ppo).startswith("A minibatch has 9 rows (36 of a rollout in 4 minibatches), which cannot")
    whole: dict[str, Any] = {"rollout_steps": 100, "minibatches": 3}  # one learner cannot have it, which is said first
    dealing.check(ALGORITHMS["ppo"](**whole), Case("td3").observation, Case("td3").action, 4, 1, "torch")
    ppo |= {"recurrent": "gru", "minibatches": 2}
    assert refused(2, **ppo).startswith("A minibatch has 3 environments (6 of a rollout in 2 minibatches), which")


class Normalised(torch.nn.Sequential):
    def __init__(self, observation: Any, size: int) -> None:
        super().__init__(torch.nn.Linear(observation.size, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, size))


class NormalisedByTheBatch(torch.nn.Sequential):
    def __init__(self, observation: Any, size: int) -> None:
        norm = torch.nn.BatchNorm1d(4, affine=False, track_running_stats=False)
        super().__init__(torch.nn.Linear(observation.size, 4), norm, torch.nn.Linear(4, size))


class Shifted(torch.nn.Sequential):
    def __init__(self, observation: Any, size: int) -> None:
        super().__init__(torch.nn.Linear(observation.size, size), torch.nn.Tanh())
        self.register_buffer("middle", torch.zeros(observation.size), persistent=False)


@pytest.mark.usefixtures("two")
def test_so_it_is_in_a_network_of_the_users_own(case: Case):
    case.algorithm = replace(case.algorithm, actor_network=CustomNetwork(torch=Normalised))
    with pytest.raises(UsageError, match=r"^td3's actor, a network of your own, keeps 1\.running_mean, which no opti"):
        case.build("torch", ranks=2)
    case.algorithm = replace(case.algorithm, actor_network=CustomNetwork(torch=NormalisedByTheBatch))
    with pytest.raises(UsageError, match=r"^td3's actor, a network of your own, has a BatchNorm1d: statistics of the"):
        case.build("torch", ranks=2)
    case.algorithm = replace(case.algorithm, actor_network=CustomNetwork(torch=Shifted))
    assert case.build("torch", ranks=2).ranks == 2


def test_batch_normalisation_is_of_a_whole_batch():
    assert "crossq's networks are normalised over the rows of a whole batch" in refused(2, algorithm="crossq")
    assert "--backend jax or --network layer_norm" in refused(2, algorithm="crossq")
    case = Case("td3")
    for network, backend in (("layer_norm", "torch"), ("batch_norm", "jax")):
        crossq = ALGORITHMS["crossq"](**{"network": network})
        dealing.check(crossq, case.observation, case.action, 2, 1, backend)


def test_where_one_cannot_be_started_those_before_it_end():
    ended: list[int] = []

    class Line:
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def close(self) -> None:
            ended.append(self.rank)

    class Machines:
        host = ""

        def start(self, rank: int, made_of: bytes) -> Any:
            if rank == 3:
                raise OSError("no process left")
            return Line(rank)

    machines: Any = Machines()
    with pytest.raises(OSError, match="no process left"):
        ranks.Ranks([b"", b"", b""], machines)
    assert ended == [2, 1]


def test_an_answer_that_cannot_be_read_is_an_end():
    """The thread that listens died without a word, and the run waited for its whole patience."""
    process: Any = ranks.Process.__new__(ranks.Process)
    process._inbox = queue.Queue()
    stream = io.BytesIO(b"cno_such_module\nthing\n.")
    with pytest.raises(ModuleNotFoundError):
        process._listen(stream)
    assert process._inbox.get_nowait() is None
