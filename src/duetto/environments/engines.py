"""Engines that step the environments: our own loop, or a Gymnasium vector environment in any autoreset mode.

Both give the same `StepResult`, so that nobody else needs to know that autoreset modes exist (SPEC 1.1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from duetto.environments import obs_tree, replay, rng_state, success_info, validation
from duetto.environments.action_masks import KEY, ActionMasks, finally_in_vector, in_vector
from duetto.environments.actions import Structure, structure
from duetto.environments.errors import EnvironmentFault, kind, raised
from duetto.environments.obs_tree import Tree
from duetto.environments.replay import EpisodeRecorder, recorder
from duetto.environments.spaces import Layout
from duetto.errors import DuettoError, UsageError


class StepResult(NamedTuple):
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
    success: np.ndarray | None = None  # float64, 1 where the episode ended and its task was done, else 0, NaN: unknown


class Engine(ABC):
    """N environments that step together."""

    num_envs: int
    layout: Layout
    single_action_space: gymnasium.Space[Any]
    metadata: dict[str, Any]  # the environment's own
    label: str
    allowing: ActionMasks | None = None  # whose masks are beside observations, where there are any
    stacked: int = 1  # frames that an image observation is a stack of, each step's with all but one of the last step's

    @abstractmethod
    def reset(self, seed: int | None) -> Tree:
        """Begin an episode everywhere, environment i with seed + i; return the first observations."""

    @abstractmethod
    def step(self, actions: np.ndarray) -> StepResult:
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
    def load(self, saved: dict[str, Any], obs: Tree, seed: int) -> tuple[Tree, list[str]]:
        """Restore what `save` gave, when the observations were `obs` (N, ...).

        An environment that does not come back begins a new episode, environment i with seed + i.

        Returns:
            The observations, and for each environment why it did not come back ("" if it did).
        """

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of every environment to a copy of `value`.

        Raises:
            EnvironmentFault: One has no such attribute, or does not take the value.
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


class SyncEngine(Engine):
    """Environments stepped one after the other in this process, without Gymnasium's vector machinery (10 µs a step)."""

    envs: list[EpisodeRecorder]
    num_envs: int
    single_action_space: gymnasium.Space[Any]
    metadata: dict[str, Any]

    def __init__(self, envs: list[gymnasium.Env]) -> None:
        self.num_envs = len(envs)
        first = envs[0]
        self.label: str = label_of(first)
        validation.check_spaces(first, self.label)
        self.layout: Layout = Layout(first.observation_space)
        self.single_action_space, self.metadata = first.action_space, first.metadata
        self._allowing = ActionMasks(first.action_space)
        self.allowing: ActionMasks | None = self._allowing
        self._structure = Structure(structure(first.action_space))
        for env in envs[1:]:
            if env.observation_space != first.observation_space or env.action_space != first.action_space:
                raise UsageError(f"{self.label}: the environments have different spaces. Make them all alike.")
        self.envs = [recorder(env) for env in envs]

    def reset(self, seed: int | None) -> Tree:
        """See Engine."""
        obs = self.layout.empty(self.num_envs)
        found = []
        for i, env in enumerate(self.envs):
            first, info = validation.reset(env, i, seed=None if seed is None else seed + i)
            self.layout.write(obs, i, first)
            found.append(info.get(KEY))
            self._allowing.heed(info)
        return self._allowing.beside(obs, found)

    def step(self, actions: np.ndarray) -> StepResult:
        """See Engine."""
        n, write = self.num_envs, self.layout.write
        next_obs = self.layout.empty(n)
        reward, terminated, truncated, infos = np.empty(n), np.empty(n, bool), np.empty(n, bool), []
        for i, env in enumerate(self.envs):
            one_obs, reward[i], terminated[i], truncated[i], info = validation.step(
                env, i, self._structure.one(actions[i])
            )
            write(next_obs, i, one_obs)
            infos.append(info)
        done = terminated | truncated
        next_obs = self._allowing.beside(next_obs, [info.get(KEY) for info in infos], terminated)
        obs = obs_tree.copy(next_obs)
        if np.count_nonzero(done):
            for i in np.flatnonzero(done).tolist():
                first, info = validation.reset(self.envs[i], i)
                write(obs, i, first)
                self._allowing.write(obs, i, info.get(KEY))
        lives = None
        if "lives" in infos[0] and all(kind(info.get("lives")) in "biuf" for info in infos):
            lives = np.array([info["lives"] for info in infos])
        success = success_info.of(infos, done) if np.count_nonzero(done) else None
        return StepResult(next_obs, reward, terminated, truncated, obs, done, None, lives=lives, success=success)

    def reset_env(self, env: int, seed: int) -> Tree:
        """See Engine."""
        obs = self.layout.empty(self.num_envs)
        first, info = validation.reset(self.envs[env], env, seed=seed)
        self.layout.write(obs, env, first)
        others = np.arange(self.num_envs) != env
        return self._allowing.beside(obs, [None if other else info.get(KEY) for other in others], others)

    def render(self) -> np.ndarray | None:
        """See Engine."""
        return None if self.envs[0].render_mode is None else self.envs[0].render()  # type: ignore[return-value]

    def save(self) -> dict[str, Any] | None:
        """See Engine."""
        return {str(i): env.save() for i, env in enumerate(self.envs)}

    def load(self, saved: dict[str, Any], obs: Tree, seed: int) -> tuple[Tree, list[str]]:
        """See Engine."""
        return _load(self.envs, saved, obs, seed, self.layout, self._allowing)

    def set_attr(self, name: str, value: Any) -> None:
        """See Engine."""
        for i, env in enumerate(self.envs):
            validation.set_attr(env, i, name, value)

    def close(self) -> None:
        """See Engine."""
        for env in self.envs:
            validation.close(env)


class GymVectorEngine(Engine):
    """A Gymnasium vector environment, in whichever autoreset mode it is.

    `remake` makes it anew from a seed, for native vector environments (EnvPool) that take their seed only when made.
    """

    vector: VectorEnv
    num_envs: int
    label: str
    single_action_space: gymnasium.Space[Any]
    metadata: dict[str, Any]

    def __init__(self, vector: VectorEnv, label: str, remake: Callable[[int], VectorEnv] | None = None) -> None:
        validation.check_spaces(vector, label, "single_")
        self.vector, self.num_envs, self.label = vector, vector.num_envs, label
        known = AutoresetMode.NEXT_STEP if remake else None  # EnvPool's, which need not declare it
        declared = (vector.metadata or {}).get("autoreset_mode", known)
        modes = [mode for mode in AutoresetMode if declared in (mode, mode.name, mode.value)]
        if not modes:
            raise UsageError(f"{label} declares {declared or 'nothing'} as its autoreset mode. {DECLARE}")
        self.mode: AutoresetMode = modes[0]
        self.single_action_space, self.metadata = vector.single_action_space, vector.metadata
        self.layout: Layout = Layout(vector.single_observation_space)
        self._allowing = ActionMasks(vector.single_action_space)
        self.allowing: ActionMasks | None = self._allowing
        self._structure = Structure(structure(vector.single_action_space))
        self.pending: np.ndarray = np.zeros(self.num_envs, bool)  # ended at the last step (NEXT_STEP)
        self._remake = remake
        self._envs: list[EpisodeRecorder] = []  # those that can be reached
        if type(vector) is SyncVectorEnv and remake is None:
            self._envs = [recorder(env) for env in vector.envs]
            vector.envs[:] = self._envs

    def reset(self, seed: int | None) -> Tree:
        """See Engine."""
        self.pending[:] = False
        if seed is not None:
            for i, env in enumerate(self._envs):
                rng_state.seed(env, seed + i)
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
        except (DuettoError, EnvironmentFault):
            raise
        except (Exception, SystemExit) as error:  # of which environment, nobody knows
            raise raised("reset", error, None) from error
        obs, infos = validation.reset_vector(given)
        self._allowing.heed(infos)
        return self._allowing.beside(self._batch(obs), in_vector(infos, self.num_envs), others)

    def _batch(self, obs: Any) -> Tree:
        self.layout.check(obs, (self.num_envs,))
        return self.layout.batch(obs)

    def step(self, actions: np.ndarray) -> StepResult:
        """See Engine."""
        try:
            given = self.vector.step(self._structure.many(actions))
        except (DuettoError, EnvironmentFault):
            raise
        except (Exception, SystemExit) as error:
            raise raised("step", error, None) from error
        raw_obs, reward, terminated, truncated, infos = validation.step_vector(given, self.num_envs)
        next_obs = self._batch(raw_obs)
        done, lives = terminated | truncated, infos.get("lives")
        if not (isinstance(lives, np.ndarray) and lives.dtype.kind in "biuf" and lives.ndim == 1):
            lives = None  # what an environment calls so may be something else
        final = done & _final(infos, done)[1] & (self.mode is not AutoresetMode.SAME_STEP)
        if (wrong := final | (self.pending & (done | (reward != 0)))).any():
            found = "an episode ended with final_obs" if final.any() else "a step that resets gave a reward or an end"
            raise EnvironmentFault(f"{found}, but it is declared as {self.mode.name}. {DECLARE}", int(wrong.argmax()))
        found = in_vector(infos, self.num_envs)
        optional = {"lives": lives, "success": success_info.in_vector(infos, done) if done.any() else None}
        if self.mode is AutoresetMode.SAME_STEP and done.any():
            obs = self._allowing.beside(obs_tree.copy(next_obs), found)
            self._write_final(next_obs, infos, done)
            final = finally_in_vector(infos, self.num_envs)
            found = [last if ended else now for last, now, ended in zip(final, found, done, strict=True)]
            next_obs = self._allowing.beside(next_obs, found, terminated)
            return StepResult(next_obs, reward, terminated, truncated, obs, done, None, **optional)
        next_obs = self._allowing.beside(next_obs, found, terminated)
        obs = obs_tree.copy(next_obs)
        if self.mode is AutoresetMode.NEXT_STEP:
            bogus, self.pending = self.pending, done
            only_reset = bogus if bogus.any() else None
            return StepResult(next_obs, reward, terminated, truncated, obs, bogus, only_reset, **optional)
        if done.any() and self.mode is AutoresetMode.DISABLED:
            obs_tree.assign(obs, self._first(done), done)
        return StepResult(next_obs, reward, terminated, truncated, obs, done, None, **optional)

    def _write_final(self, next_obs: Tree, infos: dict[str, Any], done: np.ndarray) -> None:
        """Put the final observations where SAME_STEP returned the next episode's first ones."""
        found, given = _final(infos, done)
        for i in np.flatnonzero(done).tolist():
            parts = isinstance(found, dict)
            final = None if not given[i] else {key: part[i] for key, part in found.items()} if parts else found[i]
            if final is None:
                raise UsageError(
                    f"{self.label}, environment {i}: an episode ended and infos has no final observation for it, but "
                    f"its autoreset mode is declared as SAME_STEP. {DECLARE}"
                )
            self._check_kept(final, i)
            self.layout.write(next_obs, i, final)

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
        if self._envs:
            rng_state.seed(self._envs[env], seed)
        # Gymnasium's vector environments take a list; the base class is annotated for one number only.
        seeds: Any = [seed if i == env else None for i in range(self.num_envs)]
        return self._first(np.arange(self.num_envs) == env, seed=seeds)

    def render(self) -> np.ndarray | None:
        """See Engine."""
        frames = None if self.vector.render_mode is None else self.vector.render()
        return None if frames is None else frames[0]  # type: ignore[return-value]

    def save(self) -> dict[str, Any] | None:
        """See Engine."""
        if not self._envs:
            return None
        return {str(i): env.save() for i, env in enumerate(self._envs)} | {"pending": self.pending.copy()}

    def load(self, saved: dict[str, Any], obs: Tree, seed: int) -> tuple[Tree, list[str]]:
        """See Engine."""
        if not self._envs:
            return self.reset(seed), [
                f"{self.label} is a vector environment whose environments cannot be reached"
            ] * self.num_envs
        obs, why = _load(self._envs, saved, obs, seed, self.layout, self._allowing)
        self.pending = np.array(saved["pending"]) & [not one for one in why]
        if self.mode is AutoresetMode.NEXT_STEP:
            self.vector._autoreset_envs = self.pending.copy()  # type: ignore[attr-defined]
        return obs, why

    def set_attr(self, name: str, value: Any) -> None:
        """See Engine."""
        if not self._envs:
            super().set_attr(name, value)
        for i, env in enumerate(self._envs):
            validation.set_attr(env, i, name, value)

    def close(self) -> None:
        """See Engine."""
        self.vector.close()


DECLARE = (
    'Set its metadata["autoreset_mode"] to NEXT_STEP if it resets in the step after an episode\'s end, to SAME_STEP if '
    'it resets in the same step and gives infos["final_obs"], or to DISABLED if Duetto must reset it.'
)


def _final(infos: dict[str, Any], done: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return the final observations, and (N,) bool which rows are given: without a mask, those that are `done`."""
    given = "final_obs" in infos  # an entry counts only where its mask says so (C2)
    return infos.get("final_obs"), np.asarray(infos.get("_final_obs", done), bool) & given


def label_of(env: gymnasium.Env | VectorEnv) -> str:
    """Return the environment's name for messages: its id, or its class."""
    return getattr(getattr(env, "spec", None), "id", None) or type(env.unwrapped).__name__


def _load(
    envs: list[EpisodeRecorder], saved: dict[str, Any], obs: Tree, seed: int, layout: Layout, allowing: ActionMasks
) -> tuple[Tree, list[str]]:
    """See `Engine.load`."""
    loaded = list(replay.load_all(envs, [saved[str(i)] for i in range(len(envs))]))
    found, reasons, masks = layout.empty(len(envs)), [], []
    for i, (env, (why, first, info)) in enumerate(zip(envs, loaded, strict=True)):
        if not why:
            layout.write(found, i, first)
            why = "" if "own" in saved[str(i)] or _same_row(found, obs, i) else replay.ELSEWHERE
        if why:
            first, info = validation.reset(env, i, seed=seed + i)
            layout.write(found, i, first)
        reasons.append(why)
        masks.append(info.get(KEY))
    found = allowing.beside(found, masks, np.ones(len(envs), bool))
    if [name for name, _ in obs_tree.parts(found)] == [name for name, _ in obs_tree.parts(obs)]:
        obs_tree.assign(found, obs, np.array([not why for why in reasons]))
    return found, reasons


def _same_row(found: Tree, obs: Tree, env: int) -> bool:
    saved = dict(obs_tree.parts(obs))
    return all(part[env].tobytes() == saved[name][env].tobytes() for name, part in obs_tree.parts(found))


def _arrays(obs: Any) -> list[np.ndarray]:
    """Return the arrays in an observation of any space."""
    if isinstance(obs, dict):
        return [array for part in obs.values() for array in _arrays(part)]
    if isinstance(obs, tuple | list):
        return [array for part in obs for array in _arrays(part)]
    return [obs] if isinstance(obs, np.ndarray) else []
