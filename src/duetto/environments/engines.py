"""Engines that step the environments: our own loop, or a Gymnasium vector environment in any autoreset mode.

Both give the same `Outcome`, so that nobody else needs to know that autoreset modes exist (SPEC 1.1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from duetto.environments import calls, successes, trees
from duetto.environments import state as states
from duetto.environments.actions import Structure, structure
from duetto.environments.allowing import KEY, Allowing, finally_in_vector, in_vector
from duetto.environments.faults import Fault, kind, raised
from duetto.environments.spaces import Layout
from duetto.environments.trees import Tree
from duetto.environments.workers import Workers
from duetto.errors import DuettoError, UsageError


class Outcome(NamedTuple):
    """The outcome of one vector step; all arrays have N rows and are nobody else's."""

    next_obs: Tree  # what the actions really produced, the final observation where an episode ended
    reward: np.ndarray  # float64
    terminated: np.ndarray
    truncated: np.ndarray
    obs: Tree  # what to act on next
    starts: np.ndarray  # True where `obs` is an episode's first observation
    bogus: np.ndarray | None  # True where the environment only reset itself; None: nowhere
    score: np.ndarray | None = None  # float64, what counts for the episode; None: the reward
    ended: np.ndarray | None = None  # True where the episode is over; None: where it is terminated or truncated
    lives: np.ndarray | None = None  # left after this step; None: the environment does not say
    lost: np.ndarray | None = None  # True where the episode broke off without an end, and `obs` begins another one
    success: np.ndarray | None = None  # float64, 1 where the episode ended and its task was done, else 0, NaN: unknown


class Engine(ABC):
    """N environments that step together."""

    num_envs: int
    layout: Layout
    single_action_space: gymnasium.Space[Any]
    metadata: dict[str, Any]  # the environment's own
    label: str
    allowing: Allowing | None = None  # whose masks are beside observations, where there are any
    even: bool = True  # whether each environment makes a step that is learned from at every step
    stacked: int = 1  # frames that an image observation is a stack of, each step's with all but one of the last step's

    @abstractmethod
    def reset(self, seed: int | None) -> Tree:
        """Begin an episode everywhere, environment i with seed + i; return the first observations."""

    @abstractmethod
    def step(self, actions: np.ndarray) -> Outcome:
        """Step every environment, with actions (N, ...) of the environment's own kind."""

    @abstractmethod
    def reset_env(self, env: int, seed: int) -> Tree:
        """Begin a new episode in one environment; return observations of which only row `env` counts."""

    @abstractmethod
    def render(self) -> np.ndarray | None:
        """Return the first environment's frame, (H, W, 3) uint8; None without a render mode."""

    @abstractmethod
    def save(self) -> dict[str, Any] | None:
        """Return every environment's state; None where one of them cannot be saved."""

    @abstractmethod
    def load(self, saved: dict[str, Any]) -> bool:
        """Restore what `save` gave; return False where that is not possible, or not exactly."""

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of every environment to a copy of `value`.

        Raises:
            Fault: One has no such attribute, or does not take the value.
            UsageError: They cannot be reached one by one.
        """
        raise UsageError(
            f"{self.label}: {name!r} cannot be set, for its environments cannot be reached one by one. That works for "
            'those that Duetto makes one by one, with vectorization="sync" or "subprocess", and not on a cluster.'
        )

    @abstractmethod
    def close(self) -> None:
        """Release windows, processes and physics engines."""

    def numbers(self) -> dict[str, float]:
        """Return numbers about the stepping, for the log; names begin with "time/", for they depend on machines."""
        return {}


class Loop(Engine):
    """Environments stepped one after the other in this process, without Gymnasium's vector machinery (10 µs a step)."""

    envs: list[gymnasium.Env]
    num_envs: int
    single_action_space: gymnasium.Space[Any]
    metadata: dict[str, Any]

    def __init__(self, envs: list[gymnasium.Env]) -> None:
        self.envs, self.num_envs = envs, len(envs)
        first = envs[0]
        self.label: str = label_of(first)
        calls.check_spaces(first, self.label)
        self.layout: Layout = Layout(first.observation_space)
        self.single_action_space, self.metadata = first.action_space, first.metadata
        self._allowing = Allowing(first.action_space)
        self.allowing: Allowing | None = self._allowing
        self._structure = Structure(structure(first.action_space))
        for env in envs:
            states.remember(env)
        for env in envs[1:]:
            if env.observation_space != first.observation_space or env.action_space != first.action_space:
                raise UsageError(f"{self.label}: the environments have different spaces. Make them all alike.")

    def reset(self, seed: int | None) -> Tree:
        """See Engine."""
        obs = self.layout.empty(self.num_envs)
        for env in self.envs:
            states.begin(env)
        found = []
        for i, env in enumerate(self.envs):
            first, info = calls.reset(env, i, seed=None if seed is None else seed + i)
            self.layout.write(obs, i, first)
            found.append(info.get(KEY))
            self._allowing.heed(info)
        return self._allowing.beside(obs, found)

    def step(self, actions: np.ndarray) -> Outcome:
        """See Engine."""
        n, write = self.num_envs, self.layout.write
        next_obs = self.layout.empty(n)
        reward, terminated, truncated, infos = np.empty(n), np.empty(n, bool), np.empty(n, bool), []
        for i, env in enumerate(self.envs):
            one_obs, reward[i], terminated[i], truncated[i], info = calls.step(env, i, self._structure.one(actions[i]))
            write(next_obs, i, one_obs)
            infos.append(info)
        done = terminated | truncated
        next_obs = self._allowing.beside(next_obs, [info.get(KEY) for info in infos], terminated)
        obs = trees.copy(next_obs)
        if np.count_nonzero(done):
            for i in np.flatnonzero(done).tolist():
                first, info = calls.reset(self.envs[i], i)
                write(obs, i, first)
                self._allowing.write(obs, i, info.get(KEY))
        lives = None
        if "lives" in infos[0] and all(kind(info.get("lives")) in "biuf" for info in infos):
            lives = np.array([info["lives"] for info in infos])
        success = successes.of(infos, done) if np.count_nonzero(done) else None
        return Outcome(next_obs, reward, terminated, truncated, obs, done, None, lives=lives, success=success)

    def reset_env(self, env: int, seed: int) -> Tree:
        """See Engine."""
        obs = self.layout.empty(self.num_envs)
        first, info = calls.reset(self.envs[env], env, seed=seed)
        self.layout.write(obs, env, first)
        others = np.arange(self.num_envs) != env
        return self._allowing.beside(obs, [None if other else info.get(KEY) for other in others], others)

    def render(self) -> np.ndarray | None:
        """See Engine."""
        return None if self.envs[0].render_mode is None else self.envs[0].render()  # type: ignore[return-value]

    def save(self) -> dict[str, Any] | None:
        """See Engine."""
        return _numbered([states.save(env) for env in self.envs])

    def load(self, saved: dict[str, Any]) -> bool:
        """See Engine."""
        return all(states.load(env, saved[str(i)]) for i, env in enumerate(self.envs))

    def set_attr(self, name: str, value: Any) -> None:
        """See Engine."""
        for i, env in enumerate(self.envs):
            calls.set_attr(env, i, name, value)

    def close(self) -> None:
        """See Engine."""
        for env in self.envs:
            calls.close(env)


class Vector(Engine):
    """A Gymnasium vector environment, in whichever autoreset mode it is.

    `remake` makes it anew from a seed, for native vector environments (EnvPool) that take their seed only when made.
    """

    vector: VectorEnv
    num_envs: int
    label: str
    single_action_space: gymnasium.Space[Any]
    metadata: dict[str, Any]

    def __init__(self, vector: VectorEnv, label: str, remake: Callable[[int], VectorEnv] | None = None) -> None:
        self.vector, self.num_envs, self.label = vector, vector.num_envs, label
        self.mode: AutoresetMode = AutoresetMode(vector.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self.even: bool = self.mode is not AutoresetMode.NEXT_STEP
        self.single_action_space, self.metadata = vector.single_action_space, vector.metadata
        calls.check_spaces(vector, label, "single_")
        self.layout: Layout = Layout(vector.single_observation_space)
        self._allowing = Allowing(vector.single_action_space)
        self.allowing: Allowing | None = self._allowing
        self._structure = Structure(structure(vector.single_action_space))
        self.pending: np.ndarray = np.zeros(self.num_envs, bool)  # ended at the last step (NEXT_STEP)
        self._remake = remake
        if type(vector) is SyncVectorEnv:
            for env in vector.envs:
                states.remember(env)

    def reset(self, seed: int | None) -> Tree:
        """See Engine."""
        self.pending[:] = False
        for env in self.vector.envs if type(self.vector) is SyncVectorEnv else ():
            states.begin(env)
        if self._remake and seed is not None:
            self.vector.close()
            self.vector, seed = self._remake(seed), None
        return self._first(seed=seed)

    def _first(self, begun: np.ndarray | None = None, **arguments: Any) -> Tree:
        """Reset, and return the observations; with `begun` (N,) bool only those, and the other rows are as before."""
        others = None
        if begun is not None:
            others, arguments = ~begun, arguments | {"options": {"reset_mask": begun.copy()}}
        try:
            given = self.vector.reset(**arguments)
        except (DuettoError, Fault):
            raise
        except (Exception, SystemExit) as error:  # of which environment, nobody knows
            raise raised("reset", error, None) from error
        obs, infos = calls.reset_vector(given)
        self._allowing.heed(infos)
        return self._allowing.beside(self._batch(obs), in_vector(infos, self.num_envs), others)

    def _batch(self, obs: Any) -> Tree:
        self.layout.check(obs, (self.num_envs,))
        return self.layout.batch(obs)

    def step(self, actions: np.ndarray) -> Outcome:
        """See Engine."""
        try:
            given = self.vector.step(self._structure.many(actions))
        except (DuettoError, Fault):
            raise
        except (Exception, SystemExit) as error:
            raise raised("step", error, None) from error
        raw_obs, reward, terminated, truncated, infos = calls.step_vector(given, self.num_envs)
        next_obs = self._batch(raw_obs)
        done, lives = terminated | truncated, infos.get("lives")
        if not (isinstance(lives, np.ndarray) and lives.dtype.kind in "biuf" and lives.ndim == 1):
            lives = None  # what an environment calls so may be something else
        found = in_vector(infos, self.num_envs)
        optional = {"lives": lives, "success": successes.in_vector(infos, done) if done.any() else None}
        if self.mode is AutoresetMode.SAME_STEP and done.any():
            obs = self._allowing.beside(trees.copy(next_obs), found)
            self._write_final(next_obs, infos, done)
            final = finally_in_vector(infos, self.num_envs)
            found = [last if ended else now for last, now, ended in zip(final, found, done, strict=True)]
            next_obs = self._allowing.beside(next_obs, found, terminated)
            return Outcome(next_obs, reward, terminated, truncated, obs, done, None, **optional)
        next_obs = self._allowing.beside(next_obs, found, terminated)
        obs = trees.copy(next_obs)
        if self.mode is AutoresetMode.NEXT_STEP:
            bogus, self.pending = self.pending, done
            only_reset = bogus if bogus.any() else None
            return Outcome(next_obs, reward, terminated, truncated, obs, bogus, only_reset, **optional)
        if done.any() and self.mode is AutoresetMode.DISABLED:
            trees.assign(obs, self._first(done), done)
        return Outcome(next_obs, reward, terminated, truncated, obs, done, None, **optional)

    def _write_final(self, next_obs: Tree, infos: dict[str, Any], done: np.ndarray) -> None:
        """Put the final observations where SAME_STEP returned the next episode's first ones."""
        # "final_observation" is Gymnasium 0.26-0.29's name. An entry counts only where its mask says so (C2).
        key = "final_obs" if "final_obs" in infos else "final_observation"
        mask = infos.get(f"_{key}", np.zeros(self.num_envs, bool))
        for i in np.flatnonzero(done).tolist():
            if not mask[i]:
                raise UsageError(
                    f"{self.label}, environment {i}: an episode ended and infos has no final observation for it. "
                    'Correct the vector environment, or use autoreset mode "NextStep".'
                )
            self._check_kept(infos[key][i], i)
            self.layout.write(next_obs, i, infos[key][i])

    def _check_kept(self, final: Any, env: int) -> None:
        """Raise UsageError where an environment's final observation lies in memory that the reset has overwritten."""
        now: Any = getattr(self.vector.unwrapped, "_env_obs", None)  # of Gymnasium's own, which keeps what it was given
        if not isinstance(now, list | tuple) or len(now) != self.num_envs:
            return
        if any(np.shares_memory(one, other) for one, other in zip(_arrays(final), _arrays(now[env]), strict=False)):
            raise UsageError(
                f"{self.label}, environment {env}: reset gives its observation in the array of the final one, which is "
                "gone by that. Give a copy (obs.copy()), or use autoreset mode NextStep."
            )

    def reset_env(self, env: int, seed: int) -> Tree:
        """See Engine."""
        if self.num_envs == 1:
            return self.reset(seed)
        if self.mode is not AutoresetMode.DISABLED:
            raise UsageError(f"{self.label}: one environment alone can be reset only in autoreset mode DISABLED.")
        # Gymnasium's vector environments take a list; the base class is annotated for one number only.
        seeds: Any = [seed if i == env else None for i in range(self.num_envs)]
        return self._first(np.arange(self.num_envs) == env, seed=seeds)

    def render(self) -> np.ndarray | None:
        """See Engine."""
        frames = None if self.vector.render_mode is None else self.vector.render()
        return None if frames is None else frames[0]  # type: ignore[return-value]

    def save(self) -> dict[str, Any] | None:
        """See Engine."""
        if type(self.vector) is SyncVectorEnv:
            saved = _numbered([states.save(env) for env in self.vector.envs])
        elif isinstance(self.vector, Workers):
            saved = _numbered(list(self.vector.call("saved_state")))
        else:
            return None
        return saved and saved | {"pending": self.pending.copy()}

    def load(self, saved: dict[str, Any]) -> bool:
        """See Engine."""
        per_env = [saved[str(i)] for i in range(self.num_envs)]
        if type(self.vector) is SyncVectorEnv:
            exact = all(states.load(env, one) for env, one in zip(self.vector.envs, per_env, strict=True))
        elif isinstance(self.vector, Workers):
            self.vector.set_attr("saved_state", per_env)
            exact = all(self.vector.call("restored"))
        else:
            return False
        self.pending = np.array(saved.get("pending", np.zeros(self.num_envs, bool)))
        if type(self.vector) is SyncVectorEnv and self.mode is AutoresetMode.NEXT_STEP:
            self.vector._autoreset_envs = self.pending.copy()
        return exact

    def set_attr(self, name: str, value: Any) -> None:
        """See Engine."""
        if type(self.vector) is SyncVectorEnv:
            for i, env in enumerate(self.vector.envs):
                calls.set_attr(env, i, name, value)
        elif isinstance(self.vector, Workers):
            for env, fault in enumerate(self.vector.call("set_inside", name, value)):
                if fault is not None:
                    fault.env = env
                    raise fault
        else:
            super().set_attr(name, value)

    def close(self) -> None:
        """See Engine."""
        self.vector.close()


def label_of(env: gymnasium.Env | VectorEnv) -> str:
    """Return the environment's name for messages: its id, or its class."""
    return getattr(getattr(env, "spec", None), "id", None) or type(env.unwrapped).__name__


def _numbered(saved: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    return None if any(one is None for one in saved) else {str(i): one for i, one in enumerate(saved)}


def _arrays(obs: Any) -> list[np.ndarray]:
    """Return the arrays in an observation of any space."""
    if isinstance(obs, dict):
        return [array for part in obs.values() for array in _arrays(part)]
    if isinstance(obs, tuple | list):
        return [array for part in obs for array in _arrays(part)]
    return [obs] if isinstance(obs, np.ndarray) else []
