"""An engine of N environments that are spread over actors: the pace `exact`.

    coordinator   act for all | send actions ........................ join | remember, learn | act for all
    actor 0                   |      step its share  |  wait               |     wait        |
    actor 1                   |      step its share           |  wait      |     wait        |

The coordinator acts for all environments in one batch, with the newest parameters; actors only step. So every number is
that of a run in one process, on any number of actors. All wait for the slowest one, twice a step: this pace is for
environments whose steps take longer than the way there and back, about a millisecond, and for tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from duetto.cluster.crew import Crew, Lost
from duetto.cluster.host import Description, Request
from duetto.environments import Tree, trees
from duetto.environments.engines import Engine, Outcome
from duetto.environments.shares import join_outcomes, join_saved, take_saved
from duetto.environments.spaces import Layout
from duetto.errors import UsageError
from duetto.functional.trees import merged


class Spread(Engine):
    """See Engine; closing it ends the crew."""

    name: str
    label: str
    layout: Layout
    stacked: int
    single_action_space: Any
    metadata: dict[str, Any]

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.num_envs: int = sum(len(actor.share) for actor in crew.actors)
        described: list[Description] = [values[0] for values in self._all("describe")]  # type: ignore[index]
        first = described[0]
        for other in described:
            if other.layout.space != first.layout.space or other.action_space != first.action_space:
                raise UsageError(f"{first.label}: the environments have different spaces. Make them all alike.")
        self.name, self.label, self.layout, self.stacked = first.name, first.label, first.layout, first.stacked
        self.single_action_space, self.metadata = first.action_space, first.metadata
        self.pending: np.ndarray | None = None
        self.waited: float = 0.0  # seconds, for actors
        self.more: Callable[[], dict[str, float]] = dict  # numbers
        self._anew: dict[int, Lost] = {}  # of actors whose new episodes are to be handed out with the next step

    def _all(self, method: str, arguments: list[tuple[Any, ...]] | None = None) -> list[list[Any] | Lost]:
        """Send all actors one request, each with arguments of its own; their answers in order."""
        given = arguments or [()] * len(self.crew.actors)
        results = self.crew.ask({i: [Request(method, own)] for i, own in enumerate(given)})
        return [results[i] for i in range(len(given))]

    def reset(self, seed: int | None) -> Tree:
        """See Engine."""
        seeds = [(None if seed is None else seed + actor.share.start,) for actor in self.crew.actors]
        self._anew, self.pending = {}, None
        given = self._all("reset", seeds)
        return merged(np.concatenate, [result.obs if isinstance(result, Lost) else result[0] for result in given])

    def step(self, actions: np.ndarray) -> Outcome:
        """See Engine."""
        crew, requests = self.crew, {}
        for actor in crew.actors:
            if actor.index not in self._anew:
                own = np.array(actions[actor.share.start : actor.share.stop])
                saving = [Request("save")] if crew.saving_is_due(actor) else []
                requests[actor.index] = [*saving, Request("step", (own,))]
        began = time.perf_counter()
        results = crew.ask(requests) | self._anew
        self.waited += time.perf_counter() - began
        self._anew = {}
        outcomes, pending = [], []
        for actor in crew.actors:
            match results[actor.index]:
                case Lost(obs):
                    outcomes.append(_lost(obs, len(actor.share)))
                    pending.append(None)
                case values:
                    outcomes.append(values[-1][0])
                    pending.append(values[-1][1])
        self._join_pending(pending, outcomes)
        return join_outcomes(outcomes)

    def _join_pending(self, pending: list[np.ndarray | None], outcomes: list[Outcome]) -> None:
        self.pending = None
        if any(part is not None for part in pending):
            parts = [
                np.zeros(len(outcomes[i].reward), bool) if part is None else part for i, part in enumerate(pending)
            ]
            self.pending = np.concatenate(parts)

    def reset_env(self, env: int, seed: int) -> Tree:
        """See Engine."""
        [actor] = [actor for actor in self.crew.actors if env in actor.share]
        request = {actor.index: [Request("reset_env", (env - actor.share.start, seed))]}
        result = self.crew.ask(request)[actor.index]
        own: Any = result.obs if isinstance(result, Lost) else result[0]
        rows = {name: np.empty((self.num_envs, *part.shape[1:]), part.dtype) for name, part in trees.parts(own)}
        for name, part in trees.parts(own):
            rows[name][env] = part[env - actor.share.start]
        return rows if isinstance(own, dict) else rows[""]

    def render(self) -> None:
        """See Engine; nothing, as environments that are shown are made in the process that shows them."""

    def save(self) -> dict[str, Any] | None:
        """See Engine."""
        results = self._all("save")
        self._anew |= {index: result for index, result in enumerate(results) if isinstance(result, Lost)}
        return join_saved([None if isinstance(result, Lost) else result[0] for result in results])

    def load(self, saved: dict[str, Any]) -> bool:
        """See Engine."""
        shares = [(take_saved(saved, actor.share),) for actor in self.crew.actors]
        return all(not isinstance(result, Lost) and result[0] for result in self._all("load", shares))

    def numbers(self) -> dict[str, float]:
        """See Engine; counted in this process, not in those that the run was resumed from."""
        return {
            "time/actors": len(self.crew.actors),
            "time/actor_restarts": self.crew.restarts,
            "time/waiting_for_actors": round(self.waited, 3),
        } | self.more()

    def close(self) -> None:
        """See Engine."""
        self.crew.close()


def _lost(obs: Tree, rows: int) -> Outcome:
    """The outcome of a step in a lost actor: `rows` environments that only begin new episodes."""
    nothing, all_rows = np.zeros(rows, bool), np.ones(rows, bool)
    return Outcome(obs, np.zeros(rows), nothing, nothing, obs, all_rows, all_rows, lost=all_rows)
