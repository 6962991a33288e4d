"""Learners of several seeds that train at the same time; one program computes all of them.

    learner of seed 0   update(batch) --.                                           .--> metrics
    learner of seed 1   update(batch) --+-- SeedGroup: batches (N, B, ...), one call +--> metrics
    learner of seed 2   update(batch) --'                                           '--> metrics

Each seed has its own learner, with its own random numbers, counters and schedules. So its draws, counts and metrics are
the same as in a run of this seed alone. Only parameters and optimizer states are stacked. `SeedGroup.run` runs one
function for each seed, in turn. A function gives up its turn when its learner requests a computation:

    seed 0   collect, store, request |                                  | collect, store, request |
    seed 1                           | collect, store, request |                                  | ...
    group                                                      | answer |
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from greenlet import getcurrent, greenlet
from typing_extensions import override

from duetto.algorithms.base import Algorithm, Tree
from duetto.errors import UsageError
from duetto.functional import state_schema
from duetto.functional.pytree import tree_map, tree_stack
from duetto.learners.base import Learner, Metrics, Update
from duetto.learners.policy import Method, Parameters
from duetto.networks.preprocessing import is_image
from duetto.networks.spaces import Space
from duetto.networks.specs import NetworkSpec

if TYPE_CHECKING:
    from duetto.learners import Backend


class SeedRequest(NamedTuple):
    """A request of one seed: that the learner of all seeds makes updates or acts, or that a function is called.

    If `method` is a function, the first seed's function answers all requests of one `kind`: it gets a list of the
    seeds' inputs, and returns a list of their results.
    """

    method: Method | Literal["update_alike"] | Callable[[list[Any]], list[Any]]
    inputs: tuple[Any, ...]
    kind: Hashable = None


Kind = Literal["parameters", "optimizer_state"]


class SeedGroup:
    """The learners of N seeds, and one learner of all seeds, which computes their requests."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds: list[int] = list(seeds)
        self._all: Learner | None = None
        self._greenlets: list[greenlet] = []  # of the functions that run
        self._copies: dict[str, Any] = {}  # states of all seeds on the host, until they change
        self._left: dict[int, dict[str, Any]] = {}  # states of seeds whose functions have ended

    def learner(
        self, backend: Backend, algorithm: Algorithm, observation: Space, action: Space, **how: Any
    ) -> SeedLearner:
        """Build the learner of one of the seeds; for the arguments and exceptions see `learners.build`.

        Raises:
            UsageError: These networks cannot be computed side by side.
        """
        _check(algorithm, observation, action)
        number = self.seeds.index(how.pop("seed"))
        if self._all is None:
            from duetto import learners

            self._all = learners.build(backend, algorithm, observation, action, seed=self.seeds, **how)
        return SeedLearner(self, number, self._all, observation, action)

    def run(self, functions: Sequence[Callable[[], object]]) -> list[BaseException | None]:
        """Run one function for each seed, in turns; return each function's exception, or None.

        KeyboardInterrupt ends all functions. Functions run in greenlets, so they may send requests from any call depth.
        After a seed's function has ended, other seeds' updates do not change this seed's networks. A function must not
        send a request within `torch.inference_mode` or `torch.autocast`, as other seeds would compute in that mode.
        """
        raised: list[BaseException | None] = [None] * len(functions)

        def perform(number: int) -> None:
            try:
                functions[number]()
            except Exception as error:
                raised[number] = error
            finally:
                if self._all is not None:
                    self._left[number] = {kind: self.state(kind, number) for kind in get_args(Kind)}

        self._greenlets = [greenlet(perform) for _ in functions]
        try:
            self._take_turns()
        except BaseException:
            for one in self._greenlets:
                while one:  # started and not dead
                    with suppress(BaseException):
                        one.throw(KeyboardInterrupt)
            raise
        finally:
            self._greenlets = []
            # Restore the parameters of seeds that ended early, as updates of other seeds changed them. Optimizer
            # states stay in `_left`, because the learner of all seeds has only one count of Adam's steps.
            for number, left in self._left.items():
                self.load("parameters", number, left["parameters"])
        return raised

    def _take_turns(self) -> None:
        """Run each function (a greenlet) until its next request, in the order of seeds; then answer the requests.

        Repeat this until all functions have ended. A function whose request is not answered yet keeps waiting.
        """
        requests: dict[int, SeedRequest] = {}
        upcoming: dict[int, Callable[[], Any]] = {
            number: partial(one.switch, number) for number, one in enumerate(self._greenlets)
        }
        while upcoming:
            for number, resume in sorted(upcoming.items()):
                requests[number] = resume()
                if self._greenlets[number].dead:
                    del requests[number]
            try:
                answers = self.answer(dict(requests)) if requests else {}
                upcoming = {number: partial(self._greenlets[number].switch, one) for number, one in answers.items()}
            except Exception as error:
                upcoming = {number: partial(self._greenlets[number].throw, error) for number in requests}
            for number in upcoming:
                del requests[number]

    def request(self, number: int, request: SeedRequest) -> Any:
        """Return the answer to the request of seed `number` (an index). During `run`, the other seeds run first.

        Raises:
            UsageError: Another thread or another seed's function made this call.
            RuntimeError: The request is an update, and `run` is not running.
        """
        if self._greenlets:
            expected = self._greenlets[number]
            if getcurrent() is not expected:
                raise UsageError(
                    "While seeds train side by side, use a seed's networks only in its own callbacks, not in another "
                    "thread or in another seed's callback. Or use them after training."
                )
            assert expected.parent is not None
            return expected.parent.switch(request)
        if request.method == "update_alike":
            raise RuntimeError("Seeds that learn side by side can make updates only within SeedGroup.run.")
        return self._computed({number: request})[number]

    def answer(self, requests: Mapping[int, SeedRequest]) -> dict[int, Any]:
        """Return answers to some of the requests; `requests` has one request of each seed that has not ended.

        Updates are made only if all these requests are updates. So all seeds make the same number of updates.
        """
        alike: dict[Hashable, dict[int, SeedRequest]] = {}
        for number, one in requests.items():
            if one.method != "update_alike":
                kind = one.kind or f"{one.method} {tree_map(np.shape, one.inputs)}"
                alike.setdefault(kind, {})[number] = one
        groups = alike.values() or [requests]
        return {number: found for group in groups for number, found in self._computed(group).items()}

    def _computed(self, requests: Mapping[int, SeedRequest]) -> dict[int, Any]:
        """Compute requests of one kind.

        Seeds without a request get another seed's inputs, and their results are ignored.
        """
        other = next(iter(requests.values()))
        if callable(other.method):
            results = other.method([one.inputs for one in requests.values()])
            return dict(zip(requests, results, strict=True))
        each = [requests.get(number, other).inputs for number in range(len(self.seeds))]
        if other.method != "update_alike":
            found = self._learner._act(other.method, *tree_stack(each))
            return {number: row(found, number) for number in requests}
        self._copies.clear()
        metrics = self._learner.update_alike(_stacked(each))
        return {number: [one.row(number) for one in metrics] for number in requests}

    @property
    def _learner(self) -> Learner:
        assert self._all is not None
        return self._all

    # ------------------------------------------------------------------------------------------------ state
    def state(self, kind: Kind, number: int) -> dict[str, Any]:
        """Return a copy of one seed's parameters or optimizer state (`kind`)."""
        if number in self._left:
            return copy.deepcopy(self._left[number][kind])
        if kind not in self._copies:
            self._copies[kind] = getattr(self._learner, kind)()
        return copy.deepcopy(row(self._copies[kind], number))

    def load(self, kind: Kind, number: int, state: dict[str, Any]) -> None:
        """Set one seed's parameters or optimizer state (`kind`). Raise CheckpointError if it does not fit."""
        states = getattr(self._learner, kind)()
        expected = tree_map(lambda x: x if isinstance(x, np.ndarray) else type(x), row(states, number))
        state_schema.check(state, expected, "learner")
        if number in self._left:
            self._left[number][kind] = state
        put(states, number, state)
        getattr(self._learner, f"load_{kind}")(states)
        self._copies.clear()


class SeedLearner(Learner):
    """The learner of one seed, which sends its updates and calls of the policy to a `SeedGroup`."""

    def __init__(self, group: SeedGroup, number: int, every: Learner, observation: Space, action: Space) -> None:
        """Called by `SeedGroup.learner`; `every` is the learner of all seeds."""
        super().__init__(every.algorithm, observation, action, group.seeds[number], every.precision)
        self._group, self._number = group, number
        self.backend: Backend = every.backend
        self.threads: int = every.threads
        self.seeds: int = len(group.seeds)
        rollout: Any = every.algorithm.memory()
        self.at_once: int = rollout.epochs if self.on_policy and not self._adapted else 1
        # One JAX program for all seeds is faster than NumPy for each seed; PyTorch's `vmap` is slower than NumPy.
        self._numpy_rows = self._numpy_rows if every.backend == "torch" else 0

    @override
    def update_alike(self, updates: Sequence[Update]) -> list[Metrics]:
        return self._group.request(self._number, SeedRequest("update_alike", tuple(updates)))

    @override
    def _act(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        return self._group.request(self._number, SeedRequest(method, (obs, *noise)))

    @override
    def parameters(self, *networks: str) -> Parameters:
        found = self._group.state("parameters", self._number)
        return {name: found[name] for name in networks or found}

    @override
    def load_parameters(self, parameters: Parameters) -> None:
        self._numpy_policy = None
        self._group.load("parameters", self._number, parameters)

    @override
    def optimizer_state(self) -> dict[str, Any]:
        return self._group.state("optimizer_state", self._number)

    @override
    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        self._group.load("optimizer_state", self._number, state)


def _stacked(each: Sequence[Sequence[Update]]) -> list[Update]:
    """Stack the updates of all seeds, with the seed as first axis. Updates from one rollout share one batch."""
    stacked: list[Update] = []
    for number, updates in enumerate(zip(*each, strict=True)):
        same = number > 0 and updates[0].batch is each[0][number - 1].batch
        batch = stacked[-1].batch if same else tree_stack([one.batch for one in updates])
        stacked.append(Update(updates[0].phase, batch, *tree_stack([one[2:] for one in updates])))
    return stacked


def row(tree: Any, number: int) -> Any:
    """Return the tree with row `number` of every array and list; other leaves are the same for all seeds."""

    def own(part: Any) -> Any:
        if isinstance(part, np.ndarray):
            return part[number, ...]  # `...` makes a vector's row an array instead of a number
        return part[number] if isinstance(part, list) else part

    return tree_map(own, tree)


def put(tree: dict[str, Any], number: int, own: dict[str, Any]) -> None:
    """Set row `number` of every array and list of a tree to the values in `own`: the inverse of `row`."""
    for name, part in tree.items():
        if isinstance(part, dict):
            put(part, number, own[name])
        elif isinstance(part, np.ndarray | list):
            part[number] = own[name]
        else:
            tree[name] = own[name]


def _check(algorithm: Algorithm, observation: Space, action: Space) -> None:
    """Raise UsageError for networks that cannot be computed for several seeds at once, or would gain no speed."""
    nets = [spec for spec in algorithm.networks(observation, action).values() if isinstance(spec, NetworkSpec)]
    unsupported = {
        "custom networks": any(net.custom is not None for net in nets),
        "recurrent networks": any(net.custom is None and net.recurrent for net in nets),
        "images": any(is_image(net.observation) for net in nets),
    }
    if what := [what for what, there in unsupported.items() if there]:
        raise UsageError(
            f"Seeds train side by side only with Duetto's own networks, without recurrence, on vectors; "
            f"{algorithm.name()} has {what[0]} here. Start a run for each seed: --seed 0, --seed 1, and so on."
        )
