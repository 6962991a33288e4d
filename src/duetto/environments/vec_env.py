"""A batch of environments that returns only real transitions.

Gymnasium's three autoreset modes return different values where an episode ends. Here a transition's `next_obs` is
always what the action really produced, a reset gives no transition, and no array is shared with an environment.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from duetto.environments import env_registry, obs_tree, silence
from duetto.environments.actions import ActionMap
from duetto.environments.engines import Engine, StepResult
from duetto.environments.errors import EnvironmentFault, shown
from duetto.environments.obs_tree import Tree
from duetto.errors import CheckpointError, DuettoError, EnvironmentFailedError, NonFiniteError, UsageError
from duetto.functional import state_schema
from duetto.functional.state_schema import ANY, DictOf
from duetto.networks import masks
from duetto.networks.spaces import Space


class Transition(NamedTuple):
    """K <= num_envs real transitions of one vector step, one row each."""

    env: np.ndarray  # (K,) int64, which environment the row came from
    obs: Tree  # (K, ...)
    action: np.ndarray  # (K, A) float32 in [-1, 1], or integers: as given to `step`
    reward: np.ndarray  # (K,) float32, to learn from
    next_obs: Tree  # (K, ...), the final observation where the episode ended
    terminated: np.ndarray  # (K,) bool, with Atari's `episodic_life` also True where a life was lost
    truncated: np.ndarray  # (K,) bool


class Episode(NamedTuple):
    """A finished episode: the undiscounted sum of the environment's own rewards, and the number of steps.

    For Atari, they are the game's own score and the steps of the whole game, also with `episodic_life`.
    """

    env: int
    total_reward: float
    length: int
    success: float | None = None  # 1 or 0, from the episode's last info; None: unknown


class VecEnv:
    """A batch of `num_envs` environments that are stepped together.

    Attributes:
        observation_space, action_space: The spaces as plain data. The bounds of a Box action space are the
            environment's, although `step` takes actions in [-1, 1].
        obs: The observations to act on, (N, ...). If the environments give masks of allowed actions, a mask is added
            (`networks.masks`), which is not part of the observation space. In a vector environment with autoreset mode
            NEXT_STEP, the row of an ended episode keeps the final observation for one more step. The action for it is
            ignored and gives no transition.
        first: The first environment's number among all environments of the run; above 0 only in a cluster's actors.
        stacked: Number of frames in an image observation. If it is above 1, each step replaces only the oldest frame.
        starts: (N,) bool, True where `obs` is the first observation of an episode or, with Atari's `episodic_life`,
            of a life. Reset the hidden state of recurrent policies there.
        steps: Number of vector steps so far, including those before a resume.
        restored: (N,) bool, False where `load_state_dict` had to start a new episode.
        not_restored: Why environments could not be restored, each reason once.
        aborted: (N,) bool, True where an episode was cut off because its cluster actor was lost; None: nowhere.
        engine: Steps the environments.
        older: Whether the policy that acts has older parameters than the learner, as on a cluster.
    """

    starts: np.ndarray
    older: bool = False

    def __init__(self, engine: Engine, name: str | None = None) -> None:
        self.engine: Engine = engine
        self._actions = ActionMap(engine.single_action_space)
        self.name: str = name or engine.label
        self.first: int = 0
        self.num_envs: int = engine.num_envs
        self.stacked: int = engine.stacked
        self.observation_space: Space = engine.layout.space
        self.action_space: Space = self._actions.space
        self.steps: int = 0
        self.restored: np.ndarray = np.ones(self.num_envs, bool)
        self.not_restored: list[str] = []
        self.aborted: np.ndarray | None = None
        self._seed = 0
        self._rows = np.arange(self.num_envs)
        self.started: bool = False
        self._rendered = False

    @property
    def obs(self) -> Tree:
        """The observations to act on next, (N, ...). Raises UsageError before the first reset."""
        if not self.started:
            raise UsageError(
                f"{self.name} has no observation before its first reset. In callbacks of a new run, read it from the "
                "first on_step on, not in on_start."
            )
        return self._obs_to_act_on

    def reset(self, seed: int) -> None:
        """Start new episodes; environment i gets the seed `seed + i`.

        Later episodes are not seeded: they continue the environment's random generator.
        """
        self._seed = seed
        with self._telling():
            self._begin(self.engine.reset(seed))

    def reset_env(self, env: int, seed: int) -> None:
        """Drop one environment's episode and start a new one with this seed, if the engine can do so."""
        with self._telling():
            obs, row = self.engine.reset_env(env, seed), np.array([env])
        if obs is None:
            return
        self._check_obs(obs_tree.take(obs, row), row)
        obs_tree.assign(self._obs, obs, row)
        self._obs_to_act_on = obs_tree.copy(self._obs)
        self._returns[env], self._lengths[env], self.starts[env] = 0.0, 0, True

    def step(self, action: np.ndarray) -> tuple[Transition, list[Episode]]:
        """Step every environment with actions (N, A) in [-1, 1], or integers (N,) or (N, A).

        Returns:
            The real transitions, and the episodes that ended with them.

        Raises:
            UsageError: The action has the wrong shape, or the environment returns an observation outside its space, a
                reward that is not a number, or not five values.
            EnvironmentFailedError: The environment raises, or its process dies or hangs.
            NonFiniteError: An action, observation or reward is NaN or infinite.
        """
        if not self.started:
            raise UsageError(f"{self.name}: step before the first reset. Call reset(seed) once.")
        action = self._actions.check(action, self.num_envs)
        self.steps += 1
        self._check("action", action, self._rows)
        try:
            result = self.engine.step(self._actions.to_environment(action))
        except EnvironmentFault as fault:
            raise fault.located(self.name, self.steps, self.first) from fault.__cause__
        rows = self._rows if result.reset_only is None else np.flatnonzero(~result.reset_only)
        if result.score is not None:
            self._check("reward", result.score, self._rows)
        with np.errstate(over="ignore"):
            reward = result.reward.astype(np.float32)
        self._check("reward", reward, self._rows)
        self._check_obs(result.next_obs, self._rows)
        if np.count_nonzero(result.starts):
            self._check_obs(result.obs, self._rows)
        whole: tuple[Any, ...] = (self._obs, action, reward, result.next_obs, result.terminated, result.truncated)
        if result.reset_only is not None:
            whole = tuple(obs_tree.take(part, rows) for part in whole)
        self._obs, self.starts = result.obs, result.starts
        self._obs_to_act_on = obs_tree.copy(self._obs)  # the caller may change it; `_obs` goes into the next transition
        return Transition(rows.copy(), *whole), self._count(result, rows)

    @property
    def resumed_exactly(self) -> bool:
        """Whether the last `load_state_dict` restored every environment; True before the first load."""
        return bool(self.restored.all())

    @property
    def masked(self) -> bool:
        """Whether the environments give action masks; False before the first reset."""
        return self.started and masks.mask_of(self._obs) is not None

    @property
    def environments(self) -> list[Any]:
        """The Gymnasium environments if each is an object in this process; otherwise empty."""
        return list(self.engine.envs)

    def call(self, function: Callable[[Any], Any]) -> Any:
        """Call `function` with the first environment, in that environment's process; return the function's value.

        Raises:
            UsageError: The environments cannot be reached one by one.
        """
        with self._telling():
            return self.engine.call(function)

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of every environment.

        A resumed run sets the attribute again if a checkpoint can store its value.
        """
        with self._telling():
            self.engine.set_attr(name, value)

    def sample_actions(self, random: np.random.Generator) -> np.ndarray:
        """Draw uniform random actions for every environment, in the format of `step`."""
        return self._actions.sample(random, self.num_envs, masks.mask_of(self._obs) if self.started else None)

    @property
    def render_fps(self) -> float:
        """Frames per second that show the environment at its own speed; 30 if its metadata has no number."""
        return float((self.engine.metadata or {}).get("render_fps") or 30)

    def render(self) -> np.ndarray:
        """Return the first environment's frame, (H, W, 3) uint8.

        Raises:
            UsageError: The environment has no render mode, fails to render, or returns something else.
        """
        try:
            with self._telling(), nullcontext() if self._rendered else silence.output():  # SDL's messages
                frame = self.engine.render()
            self._rendered = True
        except DuettoError:
            raise
        except Exception as error:
            raise env_registry.not_shown(self.name, error) from error
        if not (isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3):
            raise UsageError(
                f"{self.name}: render gives {shown(frame)}. Return a uint8 array of shape (height, width, 3) from it. "
                "List rgb_array among metadata['render_modes'], and let the constructor set self.render_mode. A "
                "function that makes the environment must accept render_mode and pass it on."
            )
        return frame

    def show(self, seed: int) -> None:
        """Reset environments with render_mode "human"; the first reset opens a window.

        Raises:
            UsageError: The environment has no window, or none can be opened.
        """
        modes = (self.engine.metadata or {}).get("render_modes", ["human"])
        if "human" not in modes:
            raise UsageError(
                f"{self.name} has no window: human is not among its render modes ({', '.join(map(str, modes))}). "
                "Record a video (duetto video RUN), or open a window and add human to its render_modes."
            )
        # Without a display MuJoCo ends the process silently, Bullet waits forever, and SDL draws into memory.
        display = sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"} & set(os.environ)
        if not display and env_registry.family_of(self.name):
            raise UsageError(
                f"{self.name} cannot be shown in a window without a display. Record a video: duetto video RUN."
            )
        try:
            self.reset(seed)
        except EnvironmentFailedError as error:
            if isinstance(error.__cause__, gymnasium.error.DependencyNotInstalled | ImportError):
                raise env_registry.not_shown(self.name, error.__cause__) from error
            raise

    def close(self) -> None:
        """Release the environments."""
        self.engine.close()

    def state_dict(self) -> dict[str, Any]:
        """Return all state that determines the next steps, as nested dicts of arrays and JSON values.

        "environments" is None if the environments cannot be saved.
        """
        if not self.started:
            raise UsageError(f"{self.name}: nothing to save before the first reset.")
        with self._telling():
            saved = self.engine.save()
        return {
            "environments": saved,
            "num_envs": self.num_envs,
            "seed": self._seed,
            "steps": self.steps,
            "obs": obs_tree.copy(self._obs),
            "starts": self.starts.copy(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was called.

        An environment that cannot be restored starts a new episode, with a seed derived from the saved state, and
        has False in `restored`.

        Raises:
            CheckpointError: The state is of other environments, or of another number of them.
        """
        form = {"num_envs": int, "seed": int, "steps": int, "environments": ANY}
        state_schema.check(state, form, "stepper")
        if state["num_envs"] != self.num_envs:
            raise CheckpointError(
                f"{self.name}: the saved state has {state['num_envs']} environments, this run {self.num_envs}. "
                "Resume with the same number."
            )
        self._check_rows(state)
        self._seed, self.steps = state["seed"], state["steps"]
        seed = int(np.random.SeedSequence([self._seed, self.steps]).generate_state(1)[0] >> 1)
        saved = state["environments"]
        with self._telling():
            if saved is None:
                self._begin(self.engine.reset(seed))
                self.restored, self.not_restored = np.zeros(self.num_envs, bool), []
                return
            try:
                obs, reasons = self.engine.load(saved, state["obs"], seed)
            except (DuettoError, EnvironmentFault):
                raise
            except Exception as error:  # raised by Duetto or by an environment
                raise CheckpointError(
                    f"The saved state of {self.name} cannot be loaded ({type(error).__name__}: {error}). It was "
                    "changed, or is of another version of the environment."
                ) from error
            self._begin(obs)
        self.restored = restored = np.array(reasons) == ""
        self.not_restored = list(dict.fromkeys(filter(None, reasons)))
        self.starts = np.where(restored, state["starts"], self.starts)
        self._lengths = np.where(restored, state["lengths"], self._lengths)
        self._returns = np.where(restored, state["returns"], self._returns)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn an EnvironmentFault into an error for the user, with the environment's name and the step."""
        try:
            yield
        except EnvironmentFault as fault:
            raise fault.located(self.name, self.steps, self.first) from fault.__cause__

    def _check_rows(self, state: dict[str, Any]) -> None:
        """Raise CheckpointError unless the saved arrays have the shapes and dtypes of these environments."""
        n, obs = self.num_envs, self.engine.layout.empty(self.num_envs)
        if isinstance(state.get("obs"), dict) and masks.MASK in state["obs"]:
            obs = masks.with_mask(obs, np.ones((n, sum(masks.choice_sizes(self.action_space))), bool))
        rows = {"returns": np.zeros(n), "lengths": np.zeros(n, np.int64), "starts": np.ones(n, bool), "obs": obs}
        state_schema.check(state, rows, "stepper")
        if isinstance(obs, dict):
            state_schema.check(state["obs"], DictOf(ANY, list(obs)), "stepper/obs")

    def _begin(self, obs: Tree) -> None:
        self._obs, self._obs_to_act_on = obs, obs_tree.copy(obs)
        self.starts = np.ones(self.num_envs, bool)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self.started = True
        self._check_obs(obs, self._rows)

    def _count(self, result: StepResult, rows: np.ndarray) -> list[Episode]:
        self._returns += result.reward if result.score is None else result.score  # 0 in a step that only resets
        self._lengths[rows] += 1
        done = result.terminated | result.truncated if result.ended is None else result.ended
        if not np.count_nonzero(done):
            return []
        ended = np.flatnonzero(done).tolist()
        success = [math.nan] * self.num_envs if result.success is None else result.success.tolist()
        episodes = [
            Episode(i, float(self._returns[i]), int(self._lengths[i]), None if math.isnan(success[i]) else success[i])
            for i in ended
        ]
        self._returns[ended], self._lengths[ended] = 0.0, 0
        return episodes

    def _check_obs(self, obs: Tree, rows: np.ndarray) -> None:
        for name, part in obs_tree.parts(obs):
            self._check(f"observation {name}" if name else "observation", part, rows)

    def _check(self, field: str, value: np.ndarray, rows: np.ndarray) -> None:
        """Raise NonFiniteError where `value`, one row per environment in `rows`, is NaN or infinite."""
        # One dot product finds "all finite" in 0.5 µs; if squares overflow, check each value.
        if value.dtype.kind != "f" or math.isfinite(np.vdot(value, value)):
            return
        bad = np.flatnonzero(~np.isfinite(value.reshape(len(value), -1)).all(axis=1))
        if bad.size:
            cause = "Look for the cause in the environment, or end the episode before it happens"
            if field == "action":
                cause = "The policy has diverged: lower its learning rate or look at its inputs"
            raise NonFiniteError(
                f"{self.name}, environment {rows[bad[0]] + self.first}, vector step {self.steps}: the {field} is NaN "
                f"or infinite ({value[bad[0]]}). {cause}."
            )
