"""The trainer for device environments: a compiled JAX program makes the steps and updates.

    a call of the program   runs until metrics, evaluation, checkpoint or end are due; at most `DeviceLoop.most_turns`
    between two calls       metrics, evaluations, callbacks and checkpoints, as in any run

The trainer calls the hook `on_step` after each call of the program, and never calls `on_update`. Rollouts are never
cut, so an on-policy run may exceed `steps` by less than one rollout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
from typing_extensions import override

from duetto import environments
from duetto.buffers.base import Memory, Sample
from duetto.buffers.device_replay import Arrays, DeviceReplay
from duetto.buffers.update_schedule import Schedule
from duetto.environments.device_env import DeviceEngine, arrays_of, tree_of
from duetto.errors import CheckpointError, UsageError
from duetto.functional import state_schema
from duetto.functional.running_stats import Moments
from duetto.functional.state_schema import ANY, ArrayOf
from duetto.learners.multi_seed import SeedGroup
from duetto.storage.config import Config
from duetto.storage.manifest import Segment
from duetto.training import device_loop
from duetto.training.components import Components, Execution
from duetto.training.device_loop import OBSERVATION, Advance, DeviceLoop, on_device
from duetto.training.trainer import Trainer


class DeviceMemory(Memory):
    """Holds the arrays of a device buffer between two calls of the program, and saves them in checkpoints.

    Attributes:
        arrays: The arrays of `DeviceReplay`; {} for rollouts.
        rows: Capacity of each environment's ring in steps; 0 for rollouts.
        schedule: Decides how many updates are due; not used with rollouts.
        number: Number of vector steps so far.
    """

    def __init__(self, spec: Any, num_envs: int, replay: DeviceReplay | None) -> None:
        self._replay, self._num_envs = replay, num_envs
        self.rows: int = replay.rows if replay else 0
        self.arrays: Arrays = replay.allocate() if replay else {}
        self.schedule: Schedule = Schedule(spec)  # rollouts never advance it
        self.number: int = 0

    def __len__(self) -> int:
        return min(self.number, self.rows) * self._num_envs

    @property
    def written(self) -> np.ndarray:
        """(num_envs,) int64, number of steps ever stored for each environment; zeros for rollouts."""
        return np.full(self._num_envs, self.number if self._replay else 0, np.int64)

    def due(self) -> Iterator[Sample]:
        """Yield nothing, because the compiled loop makes all updates."""
        return iter(())

    def segment(self, since: np.ndarray) -> Segment | None:
        """Return the stored steps except the first `since[i]` of environment i, sorted by environment, then by step.

        `since` is (num_envs,), with equal elements. Return None if no step is left.
        """
        if self._replay is None or not self.number:
            return None
        start = max(int(since[0]), self.number - self.rows)
        if start == self.number:
            return None
        slots = np.arange(start, self.number) % self.rows
        counts = np.stack([np.full(self._num_envs, value, np.int64) for value in (start, self.number - start)])
        rows = {name: np.swapaxes(np.asarray(array[slots]), 0, 1) for name, array in self.arrays.items()}
        flat = {name: part.reshape(-1, *part.shape[2:]) for name, part in rows.items()}
        return {"start": counts[0], "count": counts[1], **flat}

    def load_segment(self, segment: Segment) -> None:
        """Load the steps of a segment. `load_state_dict` must be called first.

        Raises:
            CheckpointError: The segment does not fit this buffer.
        """
        counts = ArrayOf(self._num_envs, (), np.int64)
        state_schema.check(segment, {"start": counts, "count": counts}, "a segment of the memory")
        start, count = int(segment["start"][0]), int(segment["count"][0])
        form = {
            name: ArrayOf(count * self._num_envs, array.shape[2:], array.dtype) for name, array in self.arrays.items()
        }
        state_schema.check(segment, form, "a segment of the memory")
        numbers = np.arange(start, start + count)
        wanted = numbers >= self.number - self.rows
        slots = numbers[wanted] % self.rows
        for name, array in self.arrays.items():
            steps = segment[name].reshape(self._num_envs, count, *array.shape[2:]).swapaxes(0, 1)
            self.arrays[name] = array.at[slots].set(steps[wanted])

    def state_dict(self) -> dict[str, Any]:
        """Return the buffer's shape, the number of steps and the state of the update schedule, but no stored step."""
        sizes = {"environments": self._num_envs, "rows": self.rows}
        return {"shape": sizes, "number": self.number, "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`. Raises CheckpointError for a buffer of another size."""
        state_schema.check(state, {"shape": ANY, "number": int, "schedule": ANY}, "memory")
        if state["shape"] != self.state_dict()["shape"]:
            raise CheckpointError(
                f"The checkpoint's replay buffer has another size ({state['shape']}). Change replay_capacity and "
                "num_envs back."
            )
        self.number = state["number"]
        self.schedule.load_state_dict(state["schedule"])


class DeviceExecution(Execution):
    """Builds a `DeviceLoop`, which acts and learns in one compiled program, in place of a `Collector`.

    The seeds of a `SeedGroup` share this program.
    """

    def __init__(self, group: SeedGroup | None) -> None:
        self._group = group

    @override
    def make_source(self, config: Config, stepper: environments.VecEnv, learner: Any, normalizer: Any) -> Any:
        engine: Any = stepper.engine
        if self._group is not None:
            learner.seeds = len(self._group.seeds)
        return DeviceLoop(config.algorithm, learner, engine.vector, config.run.seed, self._group)


class DeviceComponents(Components):
    """The parts of a trainer that uses the compiled loop."""

    memory: Any  # a DeviceMemory
    collector: Any  # a DeviceLoop

    def _make_memory(self, seen: Any) -> Any:
        return DeviceMemory(self._config.algorithm.memory(), self.stepper.num_envs, self.collector.replay)

    def reset(self) -> None:
        """Start the first episodes, in the same states as a run on the host with this seed."""
        super().reset()
        self._take_environments()

    def _take_environments(self) -> None:
        engine = self.stepper.engine
        assert isinstance(engine, DeviceEngine)
        self.collector.carry = self.collector.first_carry(engine.state, self.stepper.obs)
        engine.state = None  # from now on the state is in the carry

    def advance(self, turns: int, step: int, horizon: int) -> Advance:
        """Run `turns` turns (see `device_loop`). `step` is the number of earlier steps; schedules end at `horizon`."""
        loop, memory, moments = self.collector, self.memory, self.normalizer.moments
        learner: Any = self.learner
        scaling = {OBSERVATION: on_device(moments[OBSERVATION])} if moments else {}
        carry = loop.carry | {"learner": learner.state, "moments": loop.carry["moments"] | scaling}
        if memory.rows:
            carry["memory"] = memory.arrays
        carry = jax.device_put(carry, learner.device)  # an uncommitted array would cause a second compilation
        carry, advance = loop.advance(carry, turns, step, horizon, memory.schedule)
        learner.state = carry.pop("learner")
        memory.arrays = carry.pop("memory", {})
        memory.number += turns * loop.steps_of_turn // self.stepper.num_envs
        if OBSERVATION in carry["moments"]:
            observed = carry["moments"].pop(OBSERVATION)
            mean, variance, count = (np.asarray(part, np.float64) for part in observed)
            self.normalizer.moments = {OBSERVATION: Moments(mean, variance, float(count))}
        loop.carry = carry
        return advance

    @property
    @override
    def steps_at_once(self) -> int:
        """The number of steps in one turn of the compiled loop, which can stop only between turns."""
        return self.collector.steps_of_turn

    @override
    def state_dict(self) -> dict[str, Any]:
        return {
            "learner": self.learner.state_dict(),
            "memory": self.memory.state_dict(),
            "collector": {},
            "stepper": {"environments": arrays_of(self.collector.carry)},
        }

    @override
    def load_state_dict(self, state: dict[str, Any], segments: Iterable[Segment]) -> None:
        if (saved := state["stepper"]["environments"]) is None:
            raise UsageError(
                f"A run of the compiled loop cannot continue with another {self._config.environment}. Restore the "
                "environment, or start a new run with these networks: --from RUN."
            )
        self.learner.load_state_dict(state["learner"])
        self.normalizer.load_state_dict(state["normalizer"])
        self._load_memory(state["memory"], segments)
        self.stepper.reset(self._config.run.seed + self.memory.number + 1)
        self._take_environments()
        self.collector.carry = tree_of(saved, self.collector.carry, "stepper/environments")


class DeviceTrainer(Trainer):
    """A trainer whose steps and updates run in one compiled program."""

    components_type: type[Components] = DeviceComponents
    step: int
    components: Any  # DeviceComponents

    def __init__(
        self, config: Config, folder: Any, environment: Any, place: Any = None, group: SeedGroup | None = None
    ):
        """Create a trainer. Raises UsageError for options that the compiled loop does not support."""
        device_loop.check(config.algorithm, config.environment)
        if place is not None:
            raise UsageError(f"{config.environment} steps in one compiled program, not on a cluster. Remove --cluster.")
        # The base class does not get `group`, because here each seed has its own learner.
        super().__init__(config, folder, environment, DeviceExecution(group))

    def _collect(self) -> None:
        """Run at most `most_turns` turns of the compiled loop, until metrics, an evaluation or a checkpoint are due."""
        loop = self.components.collector
        if not self.learner.updates and not self.step:
            self.on_activity("compiling the training loop")
        turns = min(self._turns_until_due(), loop.most_turns)
        result = self.components.advance(turns, self.step, self.config.run.horizon)
        self.step += turns * loop.steps_of_turn
        for step, metrics, numbers in result.metrics:
            self.log.add(step, metrics, numbers)
        self.log.episodes += result.earlier_episodes
        self.log.add_episodes(result.episodes)

    def _turns_until_due(self) -> int:
        options = self.config.run
        every = [options.log_every, options.evaluate_every, options.checkpoint_every]
        ends = [options.steps, *((self.step // one + 1) * one for one in every if one)]
        return max(1, -(-(min(ends) - self.step) // self.components.steps_at_once))
