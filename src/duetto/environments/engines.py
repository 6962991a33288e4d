"""Engines that step environments: one after the other in this process, or a Gymnasium vector environment.

Other engines are in `subproc`, `atari_native`, `envpool_vector`, `device_env` and in the cluster. All return a
`StepResult`, so that the trainer needs to know nothing about Gymnasium's autoreset modes.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from typing_extensions import override

from duetto.environments import exact_resume, obs_tree, rng_state, validation
from duetto.environments.actions import KEY, ActionMasks, Structure, structure
from duetto.environments.errors import EnvironmentFault, kind, raised, summary
from duetto.environments.exact_resume import EpisodeRecorder
from duetto.environments.obs_tree import Tree
from duetto.environments.spaces import Layout
from duetto.errors import DuettoError, UsageError


class StepResult(NamedTuple):
    """The outcome of one vector step; all arrays have N rows, and nothing else refers to them."""

    next_obs: Tree  # what the actions really produced: the final observation where an episode ended
    reward: np.ndarray  # float64; float32 in a compiled program, where all arrays are JAX arrays
    terminated: np.ndarray
    truncated: np.ndarray
    obs: Tree  # the observations for the next action
    starts: np.ndarray  # True where `obs` is an episode's first observation
    reset_only: np.ndarray | None = None  # True where this step only reset the environment; None: nowhere
    score: np.ndarray | None = None  # float64, the rewards that count for the episode's return; None: `reward`
    ended: np.ndarray | None = None  # True where an episode (a whole game) is over; None: terminated or truncated
    lives: np.ndarray | None = None  # left after this step; None: unknown
    success: np.ndarray | None = None  # float64: where an episode ended, 1 if its task was done, else 0; NaN: unknown


class Engine(ABC):
    """N environments that step together.

    Attributes:
        metadata: The environment's `metadata`.
        action_masks: Adds action masks to observations. Only engines that read infos use it.
        envs: The environments, if each of them is an object in this process; otherwise empty.
        pending: (N,) bool, True where an episode ended at the last step, so that the next action is ignored (autoreset
            mode NEXT_STEP).
        stacked: Number of frames in an image observation. If it is above 1, each step replaces only the oldest frame.
    """

    num_envs: int
    label: str
    layout: Layout
    single_action_space: gymnasium.Space[Any]
    metadata: dict[str, Any]
    action_masks: ActionMasks
    envs: list[EpisodeRecorder]
    pending: np.ndarray
    stacked: int = 1

    def __init__(
        self,
        num_envs: int,
        label: str,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        metadata: dict[str, Any],
    ) -> None:
        self.num_envs, self.label, self.metadata, self.envs = num_envs, label, metadata, []
        self.layout, self.single_action_space = Layout(observation_space), action_space
        self.action_masks, self.pending = ActionMasks(action_space), np.zeros(num_envs, bool)

    @abstractmethod
    def reset(self, seed: int) -> Tree:
        """Start an episode in each environment i, with seed + i; return the first observations."""

    @abstractmethod
    def step(self, actions: np.ndarray) -> StepResult:
        """Step every environment, with actions (N, ...) in the environment's own format."""

    def reset_env(self, env: int, seed: int) -> Tree | None:
        """Start a new episode in one environment; return observations. Only row `env` is valid.

        If this engine cannot reset a single environment, do nothing and return None.
        """
        return None

    def render(self) -> np.ndarray | None:
        """Return the first environment's frame, (H, W, 3) uint8; None without a render mode."""
        return None

    def save(self) -> dict[str, Any] | None:
        """Return every environment's state; None if the states cannot be saved."""
        return {str(i): env.save() for i, env in enumerate(self.envs)} or None

    def load(self, saved: dict[str, Any], obs: Tree, seed: int) -> tuple[Tree, list[str]]:
        """Restore a state from `save`; `obs` (N, ...) are the observations at the time of `save`.

        If environment i cannot be restored, it starts a new episode with seed + i.

        Returns:
            The observations, and for each environment why it was not restored ("" if it was).
        """
        if not self.envs:
            return self.reset(seed), [f"the environments of {self.label} cannot be reached one by one"] * self.num_envs
        found, reasons, masks = self.layout.empty(self.num_envs), [], []
        for i, env in enumerate(self.envs):
            why, first, info = env.load(saved[str(i)])
            if not why:
                self.layout.write(found, {i: first})
                why = "" if "own" in saved[str(i)] or _same_row(found, obs, i) else exact_resume.ELSEWHERE
            if why:
                first, info = validation.reset(env, i, seed=seed + i)
                self.layout.write(found, {i: first})
            reasons.append(why)
            masks.append(info.get(KEY))
        for state in saved.values():
            if "process" in state:  # last, since loading an environment may draw from the global generators
                rng_state.set_process_state(state["process"])
        found = self.action_masks.attach(found, masks, np.ones(self.num_envs, bool))
        if [name for name, _ in obs_tree.parts(found)] == [name for name, _ in obs_tree.parts(obs)]:
            obs_tree.assign(found, obs, np.array(reasons) == "")
        return found, reasons

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of every environment to a copy of `value`.

        Raises:
            EnvironmentFault: An environment has no such attribute, or does not accept the value.
            UsageError: The environments cannot be reached one by one.
        """
        self._reached()
        for i, env in enumerate(self.envs):
            validation.set_attr(env, i, name, value)

    def call(self, function: Callable[[gymnasium.Env], Any]) -> Any:
        """Call `function` with the first environment, in that environment's process; return the function's value.

        Raises:
            UsageError: The environments cannot be reached one by one.
        """
        self._reached()
        return function(self.envs[0])

    def _reached(self) -> None:
        if not self.envs:
            raise UsageError(
                f"{self.label}: its environments cannot be reached one by one. This is impossible on a cluster, for "
                "Atari, EnvPool and JAX environments, and in vector environments other than SyncVectorEnv."
            )

    def close(self) -> None:
        """Release windows, processes and physics engines. An error is only a warning: a run may be ending with one."""
        for env in self.envs:
            try:
                env.close()
            except Exception as error:
                said = f"close of {env.unwrapped} raised {summary(error)}. It may have left things open."
                warnings.warn(said, stacklevel=2)

    def numbers(self) -> dict[str, float]:
        """Return metrics of the engine for the log; their names start with "time/", as they depend on the machine."""
        return {}


class SyncEngine(Engine):
    """Environments stepped one after the other in this process, 10 µs a step faster than Gymnasium's SyncVectorEnv."""

    def __init__(self, envs: list[gymnasium.Env], label: str = "") -> None:
        first, label = envs[0], label or label_of(envs[0])
        validation.check_spaces(first, label)
        super().__init__(len(envs), label, first.observation_space, first.action_space, first.metadata)
        for env in envs[1:]:
            if env.observation_space != first.observation_space or env.action_space != first.action_space:
                raise UsageError(f"{label}: the environments have different spaces. Make them all alike.")
        self.envs: list[EpisodeRecorder] = [EpisodeRecorder(env) for env in envs]

    @override
    def reset(self, seed: int) -> Tree:
        return self._reset({i: seed + i for i in range(self.num_envs)})

    @override
    def reset_env(self, env: int, seed: int) -> Tree:
        return self._reset({env: seed})

    def _reset(self, seeds: Mapping[int, int]) -> Tree:
        """Reset the environments that are keys of `seeds`; return observations (N, ...), valid only in these rows."""
        obs, masks = self.layout.empty(self.num_envs), [None] * self.num_envs
        for i, seed in seeds.items():
            first, info = validation.reset(self.envs[i], i, seed=seed)
            self.layout.write(obs, {i: first})
            masks[i] = info.get(KEY)
        return self.action_masks.attach(obs, masks, np.array([i not in seeds for i in range(self.num_envs)]))

    @override
    def step(self, actions: np.ndarray) -> StepResult:
        n = self.num_envs
        next_obs, given, infos = self.layout.empty(n), {}, []
        reward, terminated, truncated = np.empty(n), np.empty(n, bool), np.empty(n, bool)
        for i, env in enumerate(self.envs):
            given[i], reward[i], terminated[i], truncated[i], info = validation.step(env, i, actions[i])
            infos.append(info)
        # Copied after all steps, as in Gymnasium's SyncVectorEnv, so environments must not return the same array.
        self.layout.write(next_obs, given)
        done = terminated | truncated
        next_obs = self.action_masks.attach(next_obs, [info.get(KEY) for info in infos], terminated)
        obs, success = obs_tree.copy(next_obs), _successes(infos, done)
        if np.count_nonzero(done):
            for i in np.flatnonzero(done).tolist():
                first, info = validation.reset(self.envs[i], i)
                self.layout.write(obs, {i: first})
                self.action_masks.write(obs, i, info.get(KEY))
        lives = None
        if "lives" in infos[0] and all(kind(info.get("lives")) in "biuf" for info in infos):
            lives = np.array([info["lives"] for info in infos])
        return StepResult(next_obs, reward, terminated, truncated, obs, done, lives=lives, success=success)

    @override
    def render(self) -> np.ndarray | None:
        return None if self.envs[0].render_mode is None else self.envs[0].render()  # type: ignore[return-value]


class GymVectorEngine(Engine):
    """A Gymnasium vector environment in any autoreset mode. Its state cannot be saved."""

    def __init__(self, vector: VectorEnv, label: str) -> None:
        validation.check_spaces(vector, label, "single_")
        spaces = vector.single_observation_space, vector.single_action_space
        super().__init__(vector.num_envs, label, *spaces, vector.metadata)
        declared = (vector.metadata or {}).get("autoreset_mode")
        modes = [mode for mode in AutoresetMode if declared in (mode, mode.name, mode.value)]
        if not modes:
            raise UsageError(f"{label} declares {declared or 'nothing'} as its autoreset mode. {DECLARE}")
        self.vector: VectorEnv = vector
        self.mode: AutoresetMode = modes[0]
        self._structure = Structure(structure(self.single_action_space))

    @override
    def reset(self, seed: int) -> Tree:
        return self._first(seed=seed)

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        try:
            return getattr(self.vector, method)(*arguments, **named)
        except DuettoError:
            raise
        except (Exception, SystemExit) as error:  # which environment raised it is unknown
            raise raised(method, error, None) from error

    def _first(self, rows: np.ndarray | None = None, **arguments: Any) -> Tree:
        """Reset all environments, or those where `rows` (N,) is True; return the observations of all environments."""
        self.pending[:] = False
        others = None
        if rows is not None:
            others, arguments = ~rows, arguments | {"options": {"reset_mask": rows.copy()}}
        obs, infos = self._call("reset", **arguments)
        masks = [info.get(KEY) for info in _infos(infos, self.num_envs)]
        return self.action_masks.attach(self.layout.batch(obs, self.num_envs), masks, others)

    @override
    def step(self, actions: np.ndarray) -> StepResult:
        given = self._call("step", self._structure.nest(actions))
        raw_obs, reward, terminated, truncated, infos = validation.step_vector(given, self.num_envs)
        next_obs, done = self.layout.batch(raw_obs, self.num_envs), terminated | truncated
        lives = infos.get("lives")
        if not (isinstance(lives, np.ndarray) and lives.dtype.kind in "biuf" and lives.ndim == 1):
            lives = None  # an environment may use this key for something else
        final = done & _final(infos, done)[1] & (self.mode is not AutoresetMode.SAME_STEP)
        if (wrong := final | (self.pending & (done | (reward != 0)))).any():
            found = "an episode ended with final_obs" if final.any() else "a reset step gave a reward or an end"
            raise EnvironmentFault(f"{found}, but it is declared as {self.mode.name}. {DECLARE}", int(wrong.argmax()))
        each = _infos(infos, self.num_envs)
        last = _infos(infos["final_info"], self.num_envs) if "final_info" in infos else each
        masks, starts, reset_only = [info.get(KEY) for info in each], done, None
        success = _successes(last, done)
        if self.mode is AutoresetMode.SAME_STEP and done.any():
            obs = self.action_masks.attach(obs_tree.copy(next_obs), masks)
            self._write_final(next_obs, infos, done)
            final = last if "final_info" in infos else [{}] * self.num_envs
            masks = [one.get(KEY) if ended else now for one, now, ended in zip(final, masks, done, strict=True)]
            next_obs = self.action_masks.attach(next_obs, masks, terminated)
        else:
            next_obs = self.action_masks.attach(next_obs, masks, terminated)
            obs = obs_tree.copy(next_obs)
        if self.mode is AutoresetMode.NEXT_STEP:
            starts = self.pending
            self.pending = done
            reset_only = starts if starts.any() else None
        elif self.mode is AutoresetMode.DISABLED and done.any():
            obs_tree.assign(obs, self._first(done), done)
        ends = terminated, truncated
        return StepResult(next_obs, reward, *ends, obs, starts, reset_only, lives=lives, success=success)

    def _write_final(self, next_obs: Tree, infos: dict[str, Any], done: np.ndarray) -> None:
        """Overwrite the next episodes' first observations, which SAME_STEP returned, by the final observations."""
        found, given = _final(infos, done)
        for i in np.flatnonzero(done).tolist():
            if not given[i]:
                raise UsageError(
                    f"{self.label}, environment {i}: an episode ended and infos has no final observation for it, but "
                    f"its autoreset mode is declared as SAME_STEP. {DECLARE}"
                )
            parts = isinstance(found, dict)
            self.layout.write(next_obs, {i: {key: part[i] for key, part in found.items()} if parts else found[i]})

    @override
    def close(self) -> None:
        self.vector.close()


DECLARE = (
    'Set its metadata["autoreset_mode"] to NEXT_STEP if it resets in the step after an episode\'s end, to SAME_STEP if '
    'it resets in the same step and gives infos["final_obs"], or to DISABLED if Duetto must reset it.'
)


def _final(infos: dict[str, Any], done: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return the final observations and a mask (N,), True where they are valid: the mask in `infos`, or else `done`."""
    given = "final_obs" in infos  # an entry is valid only where its mask is True
    return infos.get("final_obs"), np.asarray(infos.get("_final_obs", done), bool) & given


def _infos(infos: dict[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Split a vector environment's infos into one info per environment, with only the keys that Duetto reads."""
    each: list[dict[str, Any]] = [{} for _ in range(num_envs)]
    for key in (KEY, *SUCCESS):
        if isinstance(values := infos.get(key), np.ndarray | list | tuple) and len(values) == num_envs:
            for env in np.flatnonzero(infos.get(f"_{key}", np.ones(num_envs, bool))).tolist():
                each[env][key] = values[env]
    return each


SUCCESS = ("is_success", "success")  # keys of an episode's last info, as in robotics environments


def _successes(infos: Sequence[Mapping[str, Any]], ended: np.ndarray) -> np.ndarray:
    """Return the successes (N,) of the environments: 1 or 0 if an episode ended, NaN if not or unknown.

    `ended` (N,) is True where an episode ended.

    A return does not show success: with a reward of -1 until the goal is reached, an episode with the return -50 may
    have reached the goal and left it again.
    """
    found = np.full(len(ended), np.nan)
    for env in np.flatnonzero(ended).tolist():
        value = next((np.asarray(infos[env][key]) for key in SUCCESS if key in infos[env]), np.empty(0, object))
        if value.size == 1 and value.dtype.kind in "biuf":
            found[env] = value.item() > 0
    return found


def label_of(env: Any) -> str:
    """Return the name of an environment or factory: its id, or the name of its class or function."""
    if isinstance(env, str):
        return env
    spec = None if isinstance(env, type) else getattr(env, "spec", None)
    return spec.id if spec else getattr(env, "__name__", None) or type(getattr(env, "unwrapped", env)).__name__


def _same_row(found: Tree, obs: Tree, env: int) -> bool:
    saved = dict(obs_tree.parts(obs))
    return all(part[env].tobytes() == saved[name][env].tobytes() for name, part in obs_tree.parts(found))
