"""The components of a trainer, created from its config, and their state in a checkpoint.

stepper       the `VecEnv` of the training environments
collector     acts in the environments with the learner's networks
normalizer    scales observations
memory        stores collected steps, and draws batches from them
learner       learns from batches
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np

from duetto import buffers, demonstrations, environments, learners
from duetto.errors import CheckpointError, UsageError
from duetto.functional.rng import generator
from duetto.learners.multi_seed import SeedGroup
from duetto.learners.policy import Parameters
from duetto.networks import masks, preprocessing, spaces
from duetto.storage.config import Config
from duetto.storage.manifest import Segment
from duetto.training.collector import Collector, Source
from duetto.training.evaluation import check_same_spaces
from duetto.training.normalizer import Normalizer
from duetto.training.notices import Notices

AnyMemory = buffers.Replay | buffers.Rollout | buffers.MixedReplay | buffers.ShardedReplay


class Execution:
    """Creates environments in this process, without replay shards. `ClusterExecution` uses other processes."""

    def make_stepper(self, config: Config, environment: Any, notices: list[str], **options: Any) -> environments.VecEnv:
        """Create the environments with these `options` of `environments.make`. Warnings go to `notices`.

        Raises:
            UsageError: The run was trained on a cluster, so it can only continue on a cluster.
        """
        if config.cluster:
            raise UsageError(
                "This run was trained on a cluster. It can only continue on a cluster, because actors affect its "
                "numbers. Give --cluster (in Python cluster=duetto.Cluster())."
            )
        return environments.make(environment, **options)

    def make_source(
        self, config: Config, stepper: environments.VecEnv, learner: learners.Learner, normalizer: Normalizer
    ) -> Source:
        """Create the source of experience, which acts in the environments."""
        return Collector(config.algorithm, stepper, learner, normalizer, config.run.seed)

    def make_shards(self, stepper: environments.VecEnv) -> buffers.Shards | None:
        """Create the replay buffer's shards, or return None to store the whole buffer in this process."""
        return None

    def decided(self) -> dict[str, Any]:
        """Return the cluster's options that affect results; the config stores them as `cluster`."""
        return {}


class Components:
    """The parts of one trainer. They do not know its step, its folder or its callbacks.

    Attributes:
        stepper: The `VecEnv` of the training environments.
        learner: The networks and their updates.
        memory: The replay buffer or rollout.
        normalizer: The scaling of observations.
        collector: The source of experience.
        shards: The processes that store the replay buffer; None if this process stores it.
    """

    stepper: environments.VecEnv
    learner: learners.Learner
    memory: AnyMemory
    normalizer: Normalizer
    collector: Source
    shards: buffers.Shards | None

    def __init__(
        self,
        config: Config,
        environment: Any,
        place: Execution,
        group: SeedGroup | None,
        notices: Notices,
    ) -> None:
        """Create the parts. Warnings for the user go to `notices`."""
        self._config, self._environment, self._notices = config, environment, notices
        self._masked = False  # whether the memory stores action masks
        options = config.run
        how: dict[str, Any] = {
            "num_envs": options.num_envs,
            "vectorization": options.vectorization,
            "worker_timeout": options.worker_timeout,
            "kwargs": config.environment_options,
        }
        with ExitStack() as opened:  # if a later part fails, close the earlier ones
            self.stepper = place.make_stepper(config, environment, notices, **how)
            if not environments.is_instance(environment):  # users close the environments that they created
                opened.callback(self.stepper.close)
            self.learner = self._make_learner(learners.build if group is None else group.learner)
            self._goals, self.shards = self._make_goals(opened), place.make_shards(self.stepper)
            if self.shards is not None:
                opened.callback(self.shards.close)
            self.normalizer = Normalizer(self.stepper.observation_space, *config.algorithm.observation_scaling())
            if not config.algorithm.custom_networks():  # custom networks may use any observation as an image
                notices.extend(preprocessing.image_warnings(self.stepper.observation_space))
            self.collector = place.make_source(config, self.stepper, self.learner, self.normalizer)
            self.memory = self._make_memory(self.normalizer.kept(self.stepper.observation_space))
            self._opened = opened.pop_all()

    def _make_learner(self, build: Callable[..., learners.Learner]) -> learners.Learner:
        options, algorithm, stepper = self._config.run, self._config.algorithm, self.stepper
        observation, action = stepper.observation_space, stepper.action_space
        algorithm.check_spaces(observation, action, self._config.environment)
        assert options.backend != "auto"
        assert options.device != "auto"
        return build(
            options.backend,
            algorithm,
            observation,
            action,
            seed=options.seed,
            device=options.device,
            precision=options.precision,
            threads=options.threads,
        )

    # ------------------------------------------------------------------------------------------------ the memory
    def _make_memory(self, seen: spaces.Space) -> AnyMemory:
        stepper = self.stepper
        made = buffers.build(
            self._config.algorithm.memory(),
            seen,
            stepper.action_space,
            stepper.num_envs,
            generator(self._config.run.seed, "memory"),
            lambda obs: self.learner.value(self.normalizer.scaled(obs)),
            stacked=stepper.stacked,
            demonstrations=self._demonstrations(),
            goals=self._goals,
            shards=self.shards,
        )
        if isinstance(made, buffers.Rollout):
            made.recompute_values = stepper.older
        return made

    def _make_goals(self, opened: ExitStack) -> environments.GoalEnv | None:
        """Create an environment in this process that computes hindsight rewards; return None without hindsight."""
        if getattr(self._config.algorithm.memory(), "hindsight", None) is None:
            return None
        goals = environments.GoalEnv(environments.make_eval(self._environment, kwargs=self._config.environment_options))
        opened.callback(goals.close)
        return goals

    def _demonstrations(self) -> buffers.Episodes | None:
        folder, seed = self._config.algorithm.demonstration_folder(), self._config.run.seed
        if not folder:
            return None
        found, stepper = demonstrations.load(folder), self.stepper
        spaces_here = (stepper.observation_space, stepper.action_space)
        demonstrations.check_fits(found, *spaces_here, self._config.environment, self._config.environment_options)
        randoms = (generator(seed, "demonstrations"), generator(seed, "which demonstrations"))
        return buffers.Episodes(found.episodes, *randoms, found.lengths.tolist())

    def _remember_masks(self) -> None:
        """Replace the memory by a memory that also stores action masks, for environments that return masks.

        Raises:
            UsageError: The algorithm cannot learn with masks.
        """
        self._config.algorithm.check_masks(self._config.environment)
        self._masked = True
        del self.memory  # first, because RAM may not suffice for two buffers
        observation = self.normalizer.kept(self.stepper.observation_space)
        self.memory = self._make_memory(masks.space_with_mask(observation, self.stepper.action_space))

    # ------------------------------------------------------------------------------------------------ episodes
    def reset(self) -> None:
        """Start the first episodes."""
        self.stepper.reset(self._config.run.seed)
        if self.stepper.masked:
            self._remember_masks()

    @property
    def steps_at_once(self) -> int:
        """The number of steps in one iteration (`num_envs`). The loop can stop only between iterations."""
        return self.stepper.num_envs

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Truncate running episodes of all environments, or where `envs` (N,) is True, because new episodes start."""
        self.memory.interrupt(envs)
        self.collector.interrupt(envs)

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of every training environment, and of the environment that computes hindsight rewards."""
        self.stepper.set_attr(name, value)
        if self._goals is not None:
            self._goals.set_attr(name, value)

    def look_at_saved(self, saved: dict[str, Any]) -> None:
        """Warn about environments that a resume cannot restore. `saved` is the stepper's state in a checkpoint."""
        name, states = self.stepper.name, saved["environments"]
        if states is None:
            self._notices.append(f"The state of {name} cannot be saved: resuming this run starts new episodes.")
        for why in environments.obstacles(states):
            self._notices.append(f"{name} starts a new episode when this run is resumed: {why}.")

    # ------------------------------------------------------------------------------------------------ checkpoints
    def acting_state(self) -> dict[str, Any]:
        """Return the state that acting needs: parameters, observation scaling and spaces."""
        return {
            "learner": {"parameters": self.learner.parameters()},
            "normalizer": self.normalizer.state_dict(),
            "spaces": {
                "observation": spaces.to_json(self.stepper.observation_space),
                "action": spaces.to_json(self.stepper.action_space),
                "action_dtype": np.dtype(self.stepper.engine.single_action_space.dtype).name,
                "action_mask": self._masked,
                "action_structure": environments.structure(self.stepper.engine.single_action_space),
            },
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state that resuming needs besides `acting_state`, without the memory's transitions.

        The entry "learner" is the learner's whole state; it replaces the entry "learner" of `acting_state`.
        """
        return {
            "learner": self.learner.state_dict(),
            "memory": self.memory.state_dict(),
            "collector": self.collector.state_dict(),
            "stepper": self.stepper.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], segments: Iterable[Segment]) -> None:
        """Restore the results of `acting_state` and `state_dict`, and load the memory's segments.

        Raises:
            CheckpointError: The state does not fit this run's components.
        """
        if state["spaces"]["action_mask"]:
            self._remember_masks()
        self.learner.load_state_dict(state["learner"])
        self.normalizer.load_state_dict(state["normalizer"])
        self._load_memory(state["memory"], segments)
        self.collector.load_state_dict(state["collector"])
        self.stepper.load_state_dict(state["stepper"])
        if self._goals is not None:
            for name, value in environments.attributes(state["stepper"]["environments"]).items():
                self._goals.set_attr(name, value)
        if self.stepper.masked != self._masked:
            gives = "returns action masks now" if self.stepper.masked else "returns no info['action_mask'] now"
            raise CheckpointError(
                f"{self.stepper.name} {gives}, unlike before. Change the environment back, or start a new run."
            )

    def _load_memory(self, state: dict[str, Any], segments: Iterable[Segment]) -> None:
        self.memory.load_state_dict(state)
        for segment in segments:
            self.memory.load_segment(segment)

    def check_spaces(self, saved: dict[str, Any]) -> None:
        """Raise CheckpointError if the environments' spaces differ from those of a checkpoint."""
        observation, action = (spaces.from_json(saved[kind]) for kind in ("observation", "action"))
        check_same_spaces(self.stepper, observation, action, CheckpointError)

    # ------------------------------------------------------------------------------------------------ fine-tuning
    def begin_from(self, state: dict[str, Any]) -> None:
        """Start with the networks of another run; `state` is that run's acting state or whole state.

        Raises:
            CheckpointError: The networks, the spaces or the observation statistics do not fit.
        """
        self.check_spaces(state["spaces"])
        self.normalizer.load_state_dict(state["normalizer"])
        self.learner.load_parameters(state["learner"]["parameters"] | self.fixed())

    def fixed(self) -> Parameters:
        """Return the parameters whose values are options, not learned, such as a fixed temperature of SAC."""
        algorithm = self._config.algorithm
        learned = algorithm.optimizers().keys() | algorithm.targets().keys()
        parameters = self.learner.parameters().items()
        return {name: values for name, values in parameters if name not in learned and values.keys() == {"value"}}

    def close(self) -> None:
        """Release environments and processes."""
        self._opened.close()
