"""The updates of a run: a batch from the memory, scaled for the networks, to the learner; priorities back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from duetto import buffers, learners
from duetto.algorithms.base import DIVERGENCE, SequenceBatch
from duetto.learners.base import on_host
from duetto.storage.config import Config
from duetto.training.components import Components
from duetto.training.metrics import MetricLog
from duetto.training.normalizer import AnyBatch


class Learning:
    """Makes a run's updates. Each method yields after every update, with its metrics in the log."""

    def __init__(self, config: Config, components: Components, log: MetricLog, tell: Callable[[str], None]) -> None:
        """`tell` is told of the first update, which may take long."""
        self._algorithm, self._horizon = config.algorithm, config.run.horizon
        self._components, self._log, self._tell = components, log, tell

    def due(self, step: int) -> Iterator[None]:
        """Make all updates that are due at this step.

        The learner gets `learner.at_once` batches at a time, where none depends on what was learned from another.
        """
        memory, normalizer = self._components.memory, self._components.normalizer
        due, samples = memory.due(), []
        alone = memory.needs_priorities or memory.needs_divergence or memory.needs_values
        at_once = 1 if alone else self._components.learner.at_once
        while drawn := list(islice(due, at_once)):
            samples = drawn
            yield from self._learn(samples, step)
        if samples:
            normalizer.after_learning(samples[-1].batch)

    def pretraining(self) -> Iterator[None]:
        """Learn from demonstrations before the first step."""
        for sample in self._components.memory.pretraining():
            yield from self._learn([sample], 0)

    def progress(self, step: int) -> float:
        """How far the schedules are at this step, in [0, 1]."""
        return min(1.0, step / self._horizon)

    def _learn(self, samples: list[buffers.Sample], step: int) -> Iterator[None]:
        learner = self._components.learner
        if not learner.updates:
            self._tell("compiling the first update" if learner.backend == "jax" else "first update")
        batches: list[AnyBatch] = []
        for number, sample in enumerate(samples):
            again = number > 0 and sample.batch is samples[number - 1].batch  # another epoch of a rollout
            batches.append(batches[-1] if again else self._prepared(sample.batch))
        progress = [self.progress(step - sample.age) for sample in samples]
        made = learner.update_each(batches, progress)
        for sample, metrics in zip(samples, made, strict=True):
            self._report_back(sample, metrics)
            self._log.add(step, metrics, sample.info)
            yield

    def _prepared(self, batch: AnyBatch) -> AnyBatch:
        """The batch as networks see it: with scaled observations, and previous rewards as the algorithm sees them."""
        if isinstance(batch, SequenceBatch):
            seen = self._algorithm.seen_reward(batch.obs.previous_reward)
            batch = batch._replace(obs=batch.obs._replace(previous_reward=seen))
        return self._components.normalizer.batch(batch)

    def _report_back(self, sample: buffers.Sample, metrics: learners.Metrics) -> None:
        memory = self._components.memory
        if memory.needs_priorities:
            memory.feedback(sample, on_host(metrics.priority))
        if memory.needs_divergence:
            memory.note_divergence(metrics.value(DIVERGENCE))
