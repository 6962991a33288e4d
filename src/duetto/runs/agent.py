"""A trained agent, which acts without training code and without an environment."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from duetto import environments, learners
from duetto.algorithms import Algorithm
from duetto.environments import obs_tree
from duetto.environments.errors import EnvironmentFault
from duetto.errors import CheckpointError, UsageError
from duetto.functional import state_schema
from duetto.functional.distributions import split_bounds
from duetto.learners import Backend, Learner, Precision, installed
from duetto.learners.policy import Parameters
from duetto.networks import masks, spaces
from duetto.networks.spaces import Space
from duetto.networks.specs import CustomNetwork
from duetto.runs.argument_checks import load_checkpoint
from duetto.storage.checkpoint import Loaded
from duetto.storage.config import Config
from duetto.storage.reproducibility import changes, deciding, sentence
from duetto.training.checkpoints import ACTING
from duetto.training.normalizer import Normalizer
from duetto.training.notices import Notices
from duetto.training.policy import EvaluationPolicy


class Agent:
    """A trained agent. It acts in environments with the spaces that it was trained with.

    Attributes:
        step: The training step at which its parameters were saved.
        observation_space, action_space: The spaces that it was trained with.
        action_dtype: The dtype of the actions that the environment takes.
        action_structure: Converts the policy's actions to dicts or tuples if the action space is a Dict or Tuple.
        normalizer: The normalizer that scales observations before the networks see them.
        masked: Whether it was trained with masks of allowed actions.
        config: The config of the run that it came from.
        notices: Sentences about newer checkpoints that were skipped because they are damaged, and about changes of
            `config.yaml` since the checkpoint.
    """

    def __init__(
        self, config: Config, learner: Learner, normalizer: Normalizer, loaded: Loaded, notices: list[str]
    ) -> None:
        self.config: Config = config
        self.step: int = loaded.step
        self.notices: list[str] = Notices(notices)
        state = loaded.state
        self._learner = learner
        self.normalizer: Normalizer = normalizer
        self.observation_space: Space = spaces.from_json(state["spaces"]["observation"])
        self.action_space: Space = spaces.from_json(state["spaces"]["action"])
        self._layout = environments.Layout(environments.to_gymnasium(self.observation_space))
        structure, taken = _actions(state["spaces"], self.action_space)
        self.action_structure: environments.Structure = structure
        self._actions = environments.ActionMap(taken)
        self.action_dtype: np.dtype = np.dtype(taken.dtype)
        self.masked: bool = state["spaces"]["action_mask"] is True
        self._acting: EvaluationPolicy = self.policy
        self._together = 0

    def __repr__(self) -> str:
        config = self.config
        return f"<Agent: {config.algorithm.name()} on {config.environment}, {self.step:,} steps>"

    @property
    def fingerprint(self) -> str:
        """A hash of all parameters, as 16 hexadecimal digits."""
        digest = hashlib.sha256()
        for network, arrays in sorted(self._learner.parameters().items()):
            for name, array in sorted(arrays.items()):
                digest.update(f"{network}/{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
        return digest.hexdigest()[:16]

    def reset(self) -> None:
        """Start a new episode: reset hidden states and the state of exploration noise, but no random generator."""
        self._acting.forget()
        self._together = 0

    def act(
        self, observation: Any, reward: float = 0.0, deterministic: bool | None = None, action_mask: Any = None
    ) -> Any:
        """Return the action for one observation of the environment.

        Args:
            observation: The observation. Keys of Dict and Tuple observations may be nested or joined by "/".
            reward: The reward of the last action; only recurrent agents use it. If the run's environment has the option
                `clip_rewards` or `log_rewards`, clip the reward or take its logarithm as the environment does.
            deterministic: None: act as in evaluations, which explore only if the algorithm's options
                `stochastic_evaluation` or `evaluation_epsilon` are set. True: always the greedy action. False: explore
                as in training; PPO and SAC sample.
            action_mask: The allowed actions, as in the environment's info["action_mask"]; required if the agent was
                trained with masks.

        Returns:
            The action, in the environment's dtype and bounds.

        Raises:
            UsageError: The observation or the mask has another shape than in training.
        """
        mask = None if action_mask is None else [action_mask]
        obs = self._with_mask(to_batch(self._layout, observation, several=False), mask)
        return self.action_structure.nest(self._act(obs, [reward], None, deterministic)[0])

    def act_batch(
        self,
        observations: Any,
        rewards: Any = None,
        starts: Any = None,
        deterministic: bool | None = None,
        action_mask: Any = None,
    ) -> Any:
        """Return actions (N, ...) for the observations (N, ...) of N environments.

        Args:
            observations: As a vector environment returns them.
            rewards: (N,); as in `act`.
            starts: (N,), whether an observation is the first of its episode; only recurrent agents use it. None: True
                at the first call after `reset`, and False later.
            deterministic: As in `act`.
            action_mask: (N, n); as in `act`.

        Returns:
            The actions; for Dict and Tuple action spaces each part is (N, ...).

        Raises:
            UsageError: As in `act`; or a recurrent agent gets another N than in the last call, without a `reset`.
        """
        obs = self._with_mask(to_batch(self._layout, observations, several=True), action_mask)
        return self.action_structure.nest(self._act(obs, rewards, starts, deterministic))

    def _with_mask(self, obs: Any, mask: Any) -> Any:
        """Add masks (N, n) to observations (N, ...). Raises UsageError for a missing or malformed mask."""
        if mask is None and not self.masked:
            return obs
        _, part = next(obs_tree.parts(obs))
        sizes = masks.choice_sizes(self.action_space)
        allowed = np.asarray(mask)
        if allowed.shape != (len(part), sum(sizes)) or not all(
            (allowed[:, low:high] == 1).any(axis=1).all() for low, high in split_bounds(sizes)
        ):
            raise UsageError(
                f"The action_mask is {mask!r:.80}; it must be the environment's info['action_mask'], {sum(sizes)} "
                "truth values for each observation, with an allowed action in each."
            )
        return masks.with_mask(obs, allowed.astype(bool))

    def _act(self, obs: Any, rewards: Any, starts: Any, deterministic: bool | None) -> Any:
        _, part = next(obs_tree.parts(obs))
        if self._learner.recurrent and self._together not in (0, len(part)):
            raise UsageError(
                f"The agent has hidden states of {self._together} environment(s), but got {len(part)} observations. "
                "Call reset() before it acts in other environments."
            )
        rewards = np.zeros(len(part), np.float32) if rewards is None else np.asarray(rewards, np.float32)
        is_first = None if starts is None else np.asarray(starts, bool)
        shapes = {rewards.shape, rewards.shape if is_first is None else is_first.shape}
        if shapes != {(len(part),)} or not np.isfinite(rewards).all():
            raise UsageError(f"Give one finite reward, and one start, for each of the {len(part)} observations.")
        self._together = len(part)
        self._acting.rewarded(rewards, np.arange(len(part)))
        self._acting.explores, self._acting.greedy = deterministic is False, deterministic is True
        return self._actions.to_environment(self._acting(obs, is_first))

    def parameters(self) -> Parameters:
        """Return copies of all parameters as NumPy arrays, by network and name.

        A weight is (out, in), as in PyTorch. Arrays of an ensemble have a leading axis of members.
        """
        return self._learner.parameters()

    @property
    def carry_shapes(self) -> dict[str, tuple[int, int]]:
        """Shapes (layers, units) of the hidden states of one environment, by name.

        For example {"actor/h": (1, 128)}; {} without recurrent layers.
        """
        return self._learner.carry_shapes()

    @property
    def policy(self) -> EvaluationPolicy:
        """A new policy: a function of a `VecEnv`'s N observations. Its actions (N, ...) are in [-1, 1] or integers."""
        run = self.config.run
        return EvaluationPolicy(
            self._learner, self.normalizer, self.action_space, run.seed, at=(self.step, run.horizon)
        )


def load(
    path: str | Path,
    checkpoint: str | int = "last",
    backend: str | None = None,
    networks: dict[str, CustomNetwork] | None = None,
    algorithm: type[Algorithm] | None = None,
    trust: bool = False,
    precision: Precision | None = None,
) -> Agent:
    """Load the trained agent from a run's folder.

    This runs no code in the folder. If the folder names the Python file of a custom algorithm, this file runs only if
    you started the run or set `trust`.

    Args:
        path: The run's folder.
        checkpoint: "last", "best", or a step.
        backend: "torch" or "jax"; both load every run. By default the run's backend if it is installed, else the other.
        networks: The run's custom networks by option (`{"actor_network": CustomNetwork(...)}`), if it has any.
        algorithm: The class of a custom algorithm that was passed to `train`.
        trust: Run the file of a custom algorithm even if another user started the run.
        precision: "float32" or "bf16"; by default the run's precision, or float32 with another backend than the run's.

    Raises:
        UsageError: `path` is not a run's folder, or a class is missing.
        CheckpointError: The checkpoint does not exist or is damaged.
    """
    file = Path(path) / "config.yaml"
    config = Config.load(file, networks, algorithm, trust)
    loaded = load_checkpoint(Path(path), checkpoint)
    state = loaded.state
    state_schema.check(state, ACTING, "acting")
    observation, action = (spaces.from_json(state["spaces"][kind]) for kind in ("observation", "action"))
    config.algorithm.check_spaces(observation, action, config.environment)
    learners.check_parameters(config.algorithm, observation, action, state["learner"]["parameters"])
    backend = _backend(config, backend)
    precision = precision or (config.run.precision if backend == config.run.backend else "float32")
    learner = learners.build(backend, config.algorithm, observation, action, precision=precision)
    learner.load_parameters(state["learner"]["parameters"])
    normalizer = Normalizer(observation, *config.algorithm.observation_scaling())
    normalizer.load_state_dict(state["normalizer"])
    notices = list(loaded.problems)
    if changed := changes(deciding(config), state["config"]):
        notices.append(
            f"{file.name} or a custom file has changed since step {loaded.step:,} was trained: {sentence(changed)}."
        )
    return Agent(config, learner, normalizer, loaded, notices)


def _backend(config: Config, wanted: str | None) -> Backend:
    """Return `wanted`; if it is None, the run's backend, or the other backend if only that is installed."""
    if wanted not in (None, "torch", "jax"):
        raise UsageError(f"backend is {wanted!r}; it must be torch or jax.")
    recorded: Any = wanted or config.run.backend
    other: Backend = "torch" if recorded == "jax" else "jax"
    return recorded if wanted or installed(recorded) or not installed(other) else other


def _actions(saved: dict[str, Any], action: Space) -> tuple[environments.Structure, Any]:
    """Return the saved `Structure` of Dict actions, and the Gymnasium action space. Raises CheckpointError."""
    try:
        structure = environments.Structure(saved["action_structure"] if isinstance(action, spaces.Dict) else [])
        if isinstance(action, spaces.Dict):
            structure.nest(np.zeros(spaces.num_columns(action)))
            if structure.sizes != {name: spaces.num_columns(part) for name, part in action.parts}:
                raise ValueError("they are of other parts")
        if saved["action_dtype"] not in spaces.DTYPES:
            raise ValueError("their type is none")
        return structure, environments.to_gymnasium(action, np.dtype(saved["action_dtype"]), structure.dtypes)
    except Exception as error:  # the file may come from someone else
        raise CheckpointError(
            f"The checkpoint has no valid description of actions of {action} ({error!r:.80})."
        ) from error


def to_batch(layout: environments.Layout, given: Any, several: bool) -> Any:
    """Return one observation, or N observations if `several`, in the format of `VecEnv`: arrays (N, ...).

    Keys may be nested or joined by "/". Floats may be outside their bounds, as in training.

    Raises:
        UsageError: A part is missing, has another shape than the agent was trained with, or is not in its space.
    """
    if not layout.single:
        given = {leaf.name: _part(given, leaf.name) for leaf in layout.leaves}
        if missing := [name for name, part in given.items() if part is None]:
            raise UsageError(f"The observation has no {', '.join(missing)}; the agent needs {', '.join(given)}.")
    try:
        if several:
            obs = layout.batch(given, len(given if layout.single else given[layout.leaves[0].name]))
        else:
            layout.write(obs := layout.empty(1), {0: given})
    except (EnvironmentFault, TypeError) as error:
        raise UsageError(
            f"The observation does not fit the agent: {getattr(error, 'what', f'{error}.')} act takes one observation, "
            "act_batch several."
        ) from error
    for name, part in obs_tree.parts(obs):
        if part.dtype.kind == "f" and not np.isfinite(part).all():
            raise UsageError(f"The {f'observation {name}'.rstrip()} is NaN, infinite or beyond float32: {part!r:.80}.")
    return obs


def _part(given: Any, name: str) -> Any:
    """Return the part `name`, such as "hand/left", of an observation with nested or joined keys; None if missing."""
    if isinstance(given, dict) and name in given:
        return given[name]
    key, _, rest = name.partition("/")
    with suppress(LookupError, TypeError, ValueError):
        part = given[key] if isinstance(given, dict) else given[int(key)]
        return _part(part, rest) if rest else part
    return None
