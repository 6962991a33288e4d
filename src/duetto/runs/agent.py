"""A trained agent: a policy that acts, with no training code and no environment needed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Self

import numpy as np

from duetto import environments, learners
from duetto.algorithms import Algorithm
from duetto.errors import UsageError
from duetto.functional import forms
from duetto.learners import Backend, Learner
from duetto.learners.choice import installed
from duetto.networks import spaces
from duetto.networks.specs import CustomNetwork
from duetto.storage.checkpoint import Best, CheckpointStore, Loaded
from duetto.storage.config import Config
from duetto.storage.deciding import changes, listed, where
from duetto.training.normalizer import Normalizer
from duetto.training.policy import Policy
from duetto.training.resuming import ACTING


class Agent:
    """Acts in an environment of the same spaces as the one it was trained in.

    Attributes:
        step: The training step of its parameters.
        observation_space, action_space: What it was trained with.
        config: The run that it came from.
        notices: Sentences about newer checkpoints that are damaged, if this is not the newest, and about what has
            changed in `config.yaml`.
    """

    def __init__(
        self, config: Config, learner: Learner, normalizer: Normalizer, loaded: Loaded | Best, notices: list[str]
    ) -> None:
        self.config, self.step, self.notices = config, loaded.step, notices
        state = loaded.state
        self._learner, self._normalizer = learner, normalizer
        self.observation_space, self.action_space = (
            spaces.from_json(state["spaces"][kind]) for kind in ("observation", "action")
        )
        self._observation = environments.to_gymnasium(self.observation_space)
        self._actions = environments.ActionMap(environments.to_gymnasium(self.action_space))
        self._acting = self.policy

    @classmethod
    def load(
        cls,
        folder: Path,
        checkpoint: str | int = "last",
        backend: str | None = None,
        networks: dict[str, CustomNetwork] | None = None,
        algorithm: type[Algorithm] | None = None,
        trust: bool = False,
    ) -> Self:
        """See `duetto.load`."""
        path = folder / "config.yaml"
        config = Config.load(path, networks, algorithm, trust)
        store = CheckpointStore(folder / "checkpoints")
        match checkpoint:
            case "best":
                loaded = store.load_best()
            case "last":
                loaded = store.load_latest(memory=False)  # acting needs no experience, which may be large, or damaged
            case _:
                loaded = store.load(_step(checkpoint), memory=False)
        state = loaded.state
        forms.check(state, ACTING, "acting")
        observation, action = (spaces.from_json(state["spaces"][kind]) for kind in ("observation", "action"))
        config.algorithm.check_spaces(observation, action, config.environment)
        learners.check_parameters(config.algorithm, observation, action, state["learner"]["parameters"])
        chosen = _backend(config, backend)
        precision = config.run.precision if chosen == config.run.backend else "float32"
        learner = learners.build(chosen, config.algorithm, observation, action, precision=precision)
        learner.load_parameters(state["learner"]["parameters"])
        normalizer = Normalizer(observation, *config.algorithm.observation_scaling())
        normalizer.load_state_dict(state["normalizer"])
        notices = list(loaded.problems) if isinstance(loaded, Loaded) else []
        if changed := changes(config, state.get("config", {})):
            edited = where(config, Path(path.name), changed)
            notices.append(f"{edited} has changed since step {loaded.step:,} was trained: {listed(changed)}.")
        return cls(config, learner, normalizer, loaded, notices)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell its parameters from others."""
        digest = hashlib.sha256()
        for network, arrays in sorted(self._learner.parameters().items()):
            for name, array in sorted(arrays.items()):
                digest.update(f"{network}/{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
        return digest.hexdigest()[:16]

    def reset(self) -> None:
        """Forget what happened: a new episode begins. Only recurrent agents remember anything."""
        self._acting = self.policy

    def act(self, observation: Any, reward: float = 0.0) -> Any:
        """The action, without exploration, for one observation as the environment gives it.

        `reward` is what the last action brought, with `clip_rewards` or `log_rewards` as these make it; only recurrent
        agents see it. Returns the action as the environment takes it. For Dict and Tuple observations, keys may be
        nested or joined by "/".
        """
        batched = _batched(observation)
        flat = environments.flatten_observation(self._observation, _flat(batched) if _is_nested(batched) else batched)
        self._acting.rewarded(np.array([reward], np.float32), np.zeros(1, np.int64))
        return self._actions.to_environment(self._acting(flat))[0]

    @property
    def policy(self) -> Policy:
        """Actions (N, ...) in [-1, 1] or integers for N observations as a `Stepper` gives them; each access is new."""
        return Policy(self._learner, self._normalizer, self.action_space, self.config.run.seed)


def _step(checkpoint: str | int) -> int:
    try:
        return int(checkpoint)
    except ValueError:
        raise UsageError(f"checkpoint is {checkpoint!r}; it must be last, best or a step.") from None


def _backend(config: Config, wanted: str | None) -> Backend:
    """The one asked for; else the run's own; else the one that is installed: parameters fit both."""
    recorded: Any = wanted or config.run.backend
    other: Backend = "torch" if recorded == "jax" else "jax"
    return recorded if wanted or installed(recorded) or not installed(other) else other


def _is_nested(observation: Any) -> bool:
    return isinstance(observation, dict | tuple)


def _batched(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {name: _batched(part) for name, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_batched(part) for part in observation)
    return np.asarray(observation)[None]


def _flat(observation: Any, prefix: str = "") -> dict[str, Any]:
    items = observation.items() if isinstance(observation, dict) else enumerate(observation)
    flat: dict[str, Any] = {}
    for name, part in items:
        flat |= _flat(part, f"{prefix}{name}/") if _is_nested(part) else {f"{prefix}{name}": part}
    return flat
