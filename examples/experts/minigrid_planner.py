"""An expert of `duetto demos record` that solves MiniGrid's tasks, knowing only the cells that the agent has seen.

    duetto demos record MiniGrid-KeyCorridorS3R3-v0 --expert examples/experts/minigrid_planner.py:Planner \
        --only-successes --output demos/keys

It solves KeyCorridor, DoorKey, UnlockPickup, BlockedUnlockPickup, ObstructedMaze, MultiRoom, LockedRoom, FourRooms,
SimpleCrossing, LavaCrossing, LavaGap, DistShift and Empty.

The goal is a green square, or an object to pick up (`env.obj`). In every step, the planner heads for the first of these
that it can reach:

    1. the goal
    2. a locked door whose key is in the hand, or the key of a locked door that can be reached
    3. a cell that was never seen or, while doors are locked, a box, which may hide a key

If it can reach none of these, it carries the first ball, box or key on the way aside. If it needs an empty hand, it
first puts down the object in its hand where that blocks no way.

Each step shows new cells, so it plans again in every step, by Dijkstra's algorithm over positions and directions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from duetto.environments import VecEnv
from duetto.errors import UsageError

LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)
STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # (x, y) of the directions right, down, left, up
RING = ((-1, -1), (0, -1), (1, -1), (1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0))  # a cell's neighbors, in a circle
MOVABLE = ("ball", "box", "key")
ASIDE = 12  # estimated steps to carry an object out of the way
DETOUR = 6  # extra steps accepted for a good place to put an object down

Cell = tuple[int, int]
State = tuple[int, int, int]  # x, y and direction
Wanted = Callable[[Cell], bool]
Place = Callable[[State, Cell], bool]  # whether to put something into a cell, from a state that faces it


class Aim(NamedTuple):
    """Cells to face, and the action there."""

    wanted: Wanted
    action: Callable[[Cell], int]
    hand: bool = False  # whether the hand must be empty
    then: Wanted | None = None  # cells that must stay reachable


class Planner:
    """The expert: an `Explorer` for each episode."""

    about = "Duetto's planner for MiniGrid"

    def __init__(self, stepper: VecEnv) -> None:
        """Store the environment that the planner acts in."""
        self._env = stepper.environments[0]
        if not hasattr(self._env.unwrapped, "gen_obs_grid"):
            raise UsageError(f"{stepper.name} is not a MiniGrid environment. The planner solves only these.")
        self._explorer: Explorer | None = None

    def __call__(self, obs: Any, starts: np.ndarray) -> np.ndarray:
        """Return the action (1,) int64; `starts` (1,) is True at an episode's first step."""
        if self._explorer is None or starts[0]:
            self._explorer = Explorer(self._env)
        return np.array([self._explorer.act()])

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Ignore the rewards."""


class Explorer:
    """A player of one episode in `env`, a MiniGrid environment that was just reset."""

    def __init__(self, env: Any) -> None:
        """Start without any knowledge of cells."""
        self._env: Any = env.unwrapped
        self._seen: set[Cell] = set()
        self._things: dict[Cell, Any] = {}  # contents of the seen cells that are not empty
        self._target = getattr(self._env, "obj", None)
        self._kind = self._target.type if self._target else "goal"

    def act(self) -> int:
        """Return the next action; DONE if no aim remains."""
        self._look()
        held = self._env.carrying
        for aim in self._aims(held):
            route = self._route(aim.wanted, None if aim.hand else held)
            if route and aim.hand and held:
                return self._put_down(self._in_reach(aim))
            if route:
                return self._follow(route, aim.action)
        if held:
            return self._put_down(self._no_farther())
        for aim in self._aims(None, past_things=True):
            route = self._route(aim.wanted, None, past_things=True)
            if route and (blocked := self._until_thing(route)):
                return self._follow(blocked, lambda _: PICK_UP)
        return DONE

    # ------------------------------------------------------------------------------------------------ what is known
    def _look(self) -> None:
        """Store the cells that are visible now."""
        env = self._env
        size = env.agent_view_size
        i, j = np.nonzero(env.gen_obs_grid()[1])  # column and row of the view; the agent is in the middle of the last
        ahead, right = np.array(STEPS[env.agent_dir]), np.array(STEPS[(env.agent_dir + 1) % 4])
        cells = np.array(env.agent_pos) + np.outer(size - 1 - j, ahead) + np.outer(i - size // 2, right)
        inside = ((cells >= 0) & (cells < (env.width, env.height))).all(axis=1)
        self._seen.update((x, y) for x, y in cells[inside].tolist())
        things = ((cell, env.grid.get(*cell)) for cell in sorted(self._seen))
        self._things = {cell: thing for cell, thing in things if thing is not None}

    def _known(self, kind: str) -> list[tuple[Cell, Any]]:
        """Return the things of a kind that were seen, each with its cell."""
        return [(cell, thing) for cell, thing in self._things.items() if thing.type == kind]

    # ------------------------------------------------------------------------------------------------ what to do
    def _aims(self, held: Any, past_things: bool = False) -> Iterator[Aim]:
        """Yield the aims that are worth pursuing, the best first."""
        goals = {cell for cell, thing in self._known(self._kind) if self._target in (None, thing)}
        if goals:
            yield Aim(goals.__contains__, lambda _: PICK_UP if self._target else FORWARD, hand=self._target is not None)
        locked = [(cell, door) for cell, door in self._known("door") if door.is_locked]
        for cell, door in locked:
            yield from self._unlock(cell, door, held, past_things)
        yield Aim(
            lambda cell: cell not in self._seen or (bool(locked) and self._is_closed_box(cell)),
            lambda cell: TOGGLE if cell in self._seen else FORWARD,
        )

    def _unlock(self, cell: Cell, door: Any, held: Any, past_things: bool) -> Iterator[Aim]:
        def there(other: Cell) -> bool:
            return other == cell

        in_hand = _opens(self._env.carrying, door)
        if in_hand and (held or past_things):
            yield Aim(there, lambda _: TOGGLE)
            return
        keys = {where for where, key in self._known("key") if key.color == door.color and key is not self._target}
        if keys and past_things:
            yield Aim(there, lambda _: TOGGLE)
        if keys and (past_things or self._route(there, None)):
            yield Aim(lambda other: other in keys, lambda _: PICK_UP, hand=True, then=there)

    def _is_closed_box(self, cell: Cell) -> bool:
        thing = self._things.get(cell)
        return _is(thing, "box") and thing is not self._target

    def _put_down(self, allowed: Place) -> int:
        """Return the next action to put the object down at an allowed place, preferably one that blocks no way."""
        fair: tuple[int, list[State]] | None = None
        for cost, state, before in self._routes(self._env.carrying):
            front = _front(state)
            if front not in self._seen or self._things.get(front) is not None:
                continue
            if fair and cost > fair[0] + DETOUR:
                break
            good = self._joins_nothing(front)
            if (good or fair is None) and allowed(state, front):
                fair = cost, _back(state, before)
                if good:
                    break
        return self._follow(fair[1], lambda _: DROP) if fair else DONE

    def _in_reach(self, aim: Aim) -> Place:
        """Return the rule for places from which the aim can still be reached."""
        wanted = [aim.wanted] if aim.then is None else [aim.wanted, aim.then]
        return lambda state, cell: all(self._route(one, None, start=state, laid=cell) for one in wanted)

    def _no_farther(self) -> Place:
        """Return the rule for places to put an object down without blocking more of the way.

        The object itself must not be in the way, or the planner would pick it up again.
        """
        for aim in self._aims(None, past_things=True):
            route = self._route(aim.wanted, None, past_things=True)
            if route:
                most = self._count_things(route)
                return lambda state, cell: self._count_past(aim, state, cell) <= most
        return lambda state, cell: True

    def _count_past(self, aim: Aim, state: State, laid: Cell) -> float:
        route = self._route(aim.wanted, None, past_things=True, start=state, laid=laid)
        return math.inf if route is None or laid in (one[:2] for one in route) else self._count_things(route)

    def _joins_nothing(self, cell: Cell) -> bool:
        """Return whether an object in this cell leaves a way around it: its free neighbors are connected."""
        free = []
        for dx, dy in RING:
            other = cell[0] + dx, cell[1] + dy
            thing = self._things.get(other)
            free.append(other in self._seen and (thing is None or thing.type not in ("wall", "lava")))
        return sum(one != other for one, other in pairwise([*free, free[0]])) <= 2

    # ------------------------------------------------------------------------------------------------ how to get there
    def _route(self, wanted: Wanted, held: Any, **options: Any) -> list[State] | None:
        """Return the cheapest way from the agent's position to face a wanted cell; None if there is none."""
        found = ((state, before) for _, state, before in self._routes(held, **options) if wanted(_front(state)))
        return next((_back(state, before) for state, before in found), None)

    def _routes(
        self, held: Any, past_things: bool = False, start: State | None = None, laid: Cell | None = None
    ) -> Iterator[tuple[int, State, dict[State, State | None]]]:
        """Yield every reachable state, the cheapest first, as (cost in steps, state, predecessors of states so far).

        `held` is the object in the hand. With `past_things`, routes may cross balls, boxes and keys. `laid` is a cell
        that counts as occupied, since an object would be put there.
        """
        env = self._env
        first: State = start or (int(env.agent_pos[0]), int(env.agent_pos[1]), int(env.agent_dir))
        queue: list[tuple[int, int, State, State | None]] = [(0, 0, first, None)]
        before: dict[State, State | None] = {}
        number = 0  # among states of equal cost, the one that was found first comes first
        while queue:
            cost, _, state, previous = heapq.heappop(queue)
            if state in before:
                continue
            before[state] = previous
            yield cost, state, before
            x, y, direction = state
            front = _front(state)
            ahead = self._cost(front, held, past_things, laid)
            turns = ((x, y, (direction + turn) % 4) for turn in (1, 3))
            moves = [(1, turned) for turned in turns] + ([] if ahead is None else [(ahead, (*front, direction))])
            for price, then in moves:
                if then not in before:
                    number += 1
                    heapq.heappush(queue, (cost + price, number, then, state))

    def _cost(self, cell: Cell, held: Any, past_things: bool, laid: Cell | None) -> int | None:
        """Return the steps to enter a cell from a neighboring one; None if that is impossible."""
        if cell not in self._seen:
            return None
        thing = self._things.get(cell)
        if cell == laid or (thing is not None and thing.type in MOVABLE):
            return 1 + ASIDE if past_things else None
        if thing is None or thing.type in ("goal", "floor"):
            return 1
        if thing.type == "door":
            fits = not thing.is_locked or _opens(held, thing)
            return 1 if thing.is_open else 2 if fits else None
        return None

    def _count_things(self, states: list[State]) -> int:
        """Return the number of balls, boxes and keys on a way."""
        entered = (then[:2] for now, then in pairwise(states) if _moves(now, then))
        return sum(getattr(self._things.get(cell), "type", None) in MOVABLE for cell in entered)

    def _until_thing(self, states: list[State]) -> list[State] | None:
        """Return the part of a way that ends in front of its first ball, box or key; None without these."""
        for i, state in enumerate(states[1:]):
            if _moves(states[i], state) and getattr(self._things.get(state[:2]), "type", None) in MOVABLE:
                return states[: i + 1]
        return None

    def _follow(self, states: list[State], action: Callable[[Cell], int]) -> int:
        """Return the first action on a way; at its end, the action that `action` returns for the cell in front."""
        if len(states) == 1:
            return action(_front(states[0]))
        now, then = states[:2]
        if not _moves(now, then):
            return RIGHT if then[2] == (now[2] + 1) % 4 else LEFT
        thing: Any = self._things.get(then[:2])
        return TOGGLE if _is(thing, "door") and not thing.is_open else FORWARD


def _is(thing: Any, kind: str) -> bool:
    return thing is not None and thing.type == kind


def _opens(thing: Any, door: Any) -> bool:
    return _is(thing, "key") and thing.color == door.color


def _moves(now: State, then: State) -> bool:
    return now[:2] != then[:2]


def _front(state: State) -> Cell:
    dx, dy = STEPS[state[2]]
    return state[0] + dx, state[1] + dy


def _back(state: State, before: dict[State, State | None]) -> list[State]:
    states, previous = [state], before[state]
    while previous is not None:
        states.append(previous)
        previous = before[previous]
    return states[::-1]
