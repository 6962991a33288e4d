"""Learners of several seeds that learn side by side, computed in one program.

    voice of seed 0   update(batch) --.                                       .--> metrics
    voice of seed 1   update(batch) --+-- Choir: batches (N, B, ...), one call +--> metrics
    voice of seed 2   update(batch) --'                                       '--> metrics

A voice is a learner like any other, with its own random numbers, counters and schedules: what it draws, counts and
reports is what it would alone. Only parameters and optimisers lie side by side, and what is computed with them is asked
of the choir. Whoever lets the voices sing (`training.chorus`) says when all have asked.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np

from duetto.algorithms.base import Algorithm, Tree
from duetto.errors import UsageError
from duetto.functional.trees import mapped
from duetto.learners.acting import Method
from duetto.learners.base import Learner, Metrics, Precision, Rates, Whole, epochs_at_once
from duetto.learners.choice import Backend
from duetto.learners.dealing import together
from duetto.learners.parameters import Parameters, matched
from duetto.networks.encoding import is_image
from duetto.networks.spaces import Space
from duetto.networks.specs import Network


class Many(Protocol):
    """N learners at once: a `Learner` whose arrays have a first axis of N seeds, what goes in and what comes out."""

    updates: int
    threads: int

    def _update(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics: ...

    def _epochs(self, batch: Any, each: tuple[Any, Any, Rates]) -> tuple[tuple[str, ...], Any]: ...

    def _act(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any: ...


class Lesson(NamedTuple):
    """An update that a voice wants, or all epochs of a rollout."""

    inputs: tuple[Any, ...]  # of `Learner._update`, or of `Learner._epochs`
    updates: int
    in_epochs: bool


class Question(NamedTuple):
    """A call of a voice's networks as they are; see `Learner._act`."""

    method: Method
    inputs: tuple[Tree | None, ...]


Request = Lesson | Question
Kind = Literal["parameters", "optimizer_state"]


class Choir:
    """The voices of N seeds, and what is computed for all of them.

    Attributes:
        ask: How a voice's request gets its answer.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds: list[int] = list(seeds)
        self.ask: Callable[[int, Request], Any] = self._alone
        self._many: Many | None = None
        self._copies: dict[str, Any] = {}  # of what all have, on the host, until it changes
        self._kept: dict[int, dict[str, Any]] = {}  # what those have that sing no more

    def voice(self, backend: Backend, algorithm: Algorithm, observation: Space, action: Space, **how: Any) -> Voice:
        """The learner of one of the seeds; for the arguments, and what it raises, see `learners.build`.

        Raises:
            UsageError: Such networks cannot be computed side by side.
        """
        _check(algorithm, observation, action)
        number, seed = self.seeds.index(how["seed"]), how.pop("seed")
        if self._many is None:
            from duetto import learners

            made: Any = learners.build(backend, algorithm, observation, action, seed=self.seeds, **how)
            self._many = made
        return Voice(self, number, backend, algorithm, observation, action, seed, how["precision"], self._made.threads)

    def answer(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """Answers, by the voices' numbers, to some of the requests of all voices that still sing, all of which wait.

        Questions come first: they change nothing, so for a voice without one any other's is computed. An update is made
        once all that sing want one, so all have made equally many.
        """
        lessons = {number: one for number, one in requests.items() if isinstance(one, Lesson)}
        if len(lessons) == len(requests):
            return self._learn(lessons)
        alike: dict[str, dict[int, Question]] = {}
        for number, one in requests.items():
            if isinstance(one, Question):
                alike.setdefault(f"{one.method} {mapped(np.shape, one.inputs)}", {})[number] = one
        return {number: found for group in alike.values() for number, found in self._respond(group).items()}

    def _learn(self, lessons: Mapping[int, Lesson]) -> dict[int, Any]:
        each = self._for_each(lessons)
        many = self._made
        many.updates = each[0].updates
        inputs = together([one.inputs for one in each])
        self._copies.clear()
        if each[0].in_epochs:
            names, of_all = many._epochs(*inputs)
            values = Whole(of_all)
            return {i: (names, values[i]) for i in lessons}
        found = many._update(*inputs)
        values = Whole(found.values)
        priority = None if found.priority is None else Whole(found.priority)
        return {i: Metrics(found.names, values[i], None if priority is None else priority[i]) for i in lessons}

    def _respond(self, questions: Mapping[int, Question]) -> dict[int, Any]:
        each = self._for_each(questions)
        found = self._made._act(each[0].method, *together([one.inputs for one in each]))
        return {number: row(found, number) for number in questions}

    def _for_each(self, requests: Mapping[int, Any]) -> list[Any]:
        """A request for every seed: where a seed has none, another's."""
        other = next(iter(requests.values()))
        return [requests.get(number, other) for number in range(len(self.seeds))]

    def _alone(self, number: int, request: Request) -> Any:
        """Answer a question while nobody sings. Raises RuntimeError for an update."""
        if isinstance(request, Lesson):
            raise RuntimeError("Seeds that learn side by side do so within run_together.")
        return self._respond({number: request})[number]

    @property
    def _made(self) -> Many:
        assert self._many is not None
        return self._many

    # ------------------------------------------------------------------------------------------------ state
    def state(self, kind: Kind, number: int) -> dict[str, Any]:
        """A copy of what `Many`'s method `kind` returns, for one seed."""
        if number in self._kept:
            return copy.deepcopy(self._kept[number][kind])
        if kind not in self._copies:
            self._copies[kind] = getattr(self._made, kind)()
        return row(self._copies[kind], number, copied=True)

    def load(self, kind: Kind, number: int, state: dict[str, Any]) -> None:
        """Set what `kind` names, for one seed."""
        if number in self._kept:
            self._kept[number][kind] = state
        every = getattr(self._made, kind)()
        put(every, number, state)
        getattr(self._made, f"load_{kind}")(every)
        self._copies.clear()

    def leave(self, number: int) -> None:
        """Keep this seed's state as it is now: the others learn on, and their updates change all seeds."""
        if self._many is None:  # one alone has networks of its own
            return
        self._kept[number] = {kind: self.state(kind, number) for kind in get_args(Kind)}

    def rest(self) -> None:
        """Give the seeds that have left their kept parameters to act with, once nobody learns on. Counts of Adam's
        steps are of all, so optimisers stay with what was kept.
        """
        for number, kept in self._kept.items():
            self.load("parameters", number, kept["parameters"])


class Voice(Learner):
    """The learner of one seed of a choir."""

    def __init__(
        self,
        choir: Choir,
        number: int,
        backend: Backend,
        algorithm: Algorithm,
        observation: Space,
        action: Space,
        seed: int,
        precision: Precision,
        threads: int,
    ) -> None:
        """Use `Choir.voice`."""
        super().__init__(algorithm, observation, action, seed, precision)
        self._choir, self._number = choir, number
        self.backend: Backend = backend
        self.threads: int = threads
        self.seeds: int = len(choir.seeds)
        if self.on_policy:
            self.at_once: int = epochs_at_once(algorithm)
        # One program for all seeds costs less than NumPy for each; PyTorch's `vmap` of a policy costs more than both.
        self._acts_on_host = self._acts_on_host and backend == "torch"

    def _update(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> Metrics:
        """See `Learner._update`."""
        return self._choir.ask(self._number, Lesson((batch, rows, noise, rates), self.updates, in_epochs=False))

    def _epochs(self, batch: Any, each: tuple[Any, Any, Rates]) -> tuple[tuple[str, ...], Any]:
        """See `Learner._epochs`."""
        return self._choir.ask(self._number, Lesson((batch, each), self.updates, in_epochs=True))

    def learn_beside(self) -> None:
        """See `Learner.learn_beside`. UsageError: all seeds wait for each other's updates."""
        raise UsageError(
            "Seeds side by side wait for the update of all, so none can act behind it. Leave out act_behind "
            "(--act-behind), or train them one after another."
        )

    def acting_parameters(self) -> Callable[[], Parameters]:
        """See `Learner.acting_parameters`."""
        return self.parameters

    def _act(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        """See `Learner._act`."""
        return self._choir.ask(self._number, Question(method, (obs, *noise)))

    def parameters(self) -> Parameters:
        """See `Learner.parameters`."""
        return self._choir.state("parameters", self._number)

    def load_parameters(self, parameters: Parameters) -> None:
        """See `Learner.load_parameters`."""
        self._host = None
        own = self.parameters()
        self._choir.load(
            "parameters",
            self._number,
            {name: matched(parameters.get(name, {}), _shapes(own[name]), name) for name in own},
        )

    def optimizer_state(self) -> dict[str, Any]:
        """See `Learner.optimizer_state`."""
        return self._choir.state("optimizer_state", self._number)

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """See `Learner.load_optimizer_state`."""
        own = self.optimizer_state()
        for name, moments in own.items():
            owner = f"the optimiser of {name}"
            given = {kind: matched(state[name][kind], _shapes(moments[kind]), owner) for kind in ("first", "second")}
            own[name] = {"steps": state[name]["steps"], **given}
        self._choir.load("optimizer_state", self._number, own)


def row(tree: Any, number: int, copied: bool = False) -> Any:
    """The tree with row `number` of every array and list; anything else is the same for all."""

    def own(part: Any) -> Any:
        if isinstance(part, np.ndarray):
            return np.array(part[number]) if copied else part[number]
        return part[number] if isinstance(part, list) else part

    return mapped(own, tree)


def put(tree: dict[str, Any], number: int, own: dict[str, Any]) -> None:
    """Set row `number` of every array and list of a tree to those in `own`: the inverse of `row`."""
    for name, part in tree.items():
        if isinstance(part, dict):
            put(part, number, own[name])
        elif isinstance(part, np.ndarray | list):
            part[number] = own[name]
        else:
            tree[name] = own[name]


def _shapes(values: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: np.shape(value) for name, value in values.items()}


def _check(algorithm: Algorithm, observation: Space, action: Space) -> None:
    """Raise UsageError for networks that cannot be computed side by side, or gain nothing by it."""
    nets = [spec for spec in algorithm.networks(observation, action).values() if isinstance(spec, Network)]
    found = {
        "networks of your own": any(net.custom is not None for net in nets),
        "recurrent networks": any(net.custom is None and net.recurrent for net in nets),
        "images": any(is_image(net.observation) for net in nets),
    }
    for what, there in found.items():
        if there:
            raise UsageError(
                f"Seeds are trained side by side with networks of Duetto's own, without recurrence, on vectors; "
                f"{algorithm.name()} has {what} here. Start a run for each seed: --seed 0, --seed 1, and so on."
            )
