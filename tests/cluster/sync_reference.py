"""A reference for sync runs: a loop in one process, with weights one block old, and a recorder for real runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import duetto
from duetto import buffers, environments, learners
from duetto.algorithms import Algorithm
from duetto.algorithms.base import DIVERGENCE, SequenceSpec
from duetto.cluster.remote_engine import shares
from duetto.functional.rng import generator
from duetto.learners.policy import build as build_policy
from duetto.training.collector import Collector
from duetto.training.normalizer import Normalizer, RewardScaler


class Record(NamedTuple):
    """Vector steps in the order in which they are stored, losses of each update, and the final state."""

    steps: list[Any]
    losses: list[dict[str, float]]
    buffer: dict[str, Any]
    parameters: dict[str, Any]


def reference(
    algorithm: Algorithm, environment: str, num_envs: int, actors: int, block: int, steps: int, **kwargs: Any
) -> Record:
    """Return what a sync run records: each actor is a Collector, and acts with weights that are one block old."""
    total, record = steps, Record([], [], {}, {})
    collectors: list[tuple[range, Collector, Any, Normalizer]] = []
    for share in shares(num_envs, actors):
        stepper = environments.make(environment, num_envs=len(share), kwargs=kwargs)
        stepper.first = share.start
        spaces = (stepper.observation_space, stepper.action_space)
        policy = build_policy(algorithm, *spaces, backend="torch", threads=1)
        scaling = Normalizer(spaces[0], *algorithm.observation_scaling())
        collectors.append(
            (share, Collector(algorithm, stepper, policy, scaling, share.start, num_envs), policy, scaling)
        )
        stepper.reset(share.start)
    learner = learners.build("torch", algorithm, *spaces, seed=0, device="cpu", threads=1)
    normalizer = Normalizer(spaces[0], *algorithm.observation_scaling())
    spec, scale = algorithm.memory(), algorithm.reward_scaling()
    rewards = scale and RewardScaler(0, spec.discount, *scale)
    kept, random = normalizer.kept(spaces[0]), generator(0, "memory")
    buffer = buffers.build(spec, kept, spaces[1], num_envs, random, lambda obs: learner.value(normalizer.scaled(obs)))
    if isinstance(buffer, buffers.Rollout):
        buffer.recompute_values = True
    step, weights = 0, (learner.parameters(), normalizer.moments, rewards and rewards.moments)
    while True:
        made = []
        for share, collector, policy, scaling in collectors:
            policy.load_parameters({name: weights[0][name] for name in algorithm.acting_networks})
            scaling.follow(weights[1])
            if collector.rewards is not None:
                collector.rewards.follow(weights[2])
            own = [collector.collect(step + row * num_envs, total)[0] for row in range(block)]
            made.append([one._replace(env=one.env + share.start) for one in own])
        for _, collector, _, scaling in collectors:
            normalizer.learn_of(scaling.news)
            if rewards is not None and collector.rewards is not None:
                rewards.learn_of(collector.rewards.news)
                rewards.largest = max(rewards.largest, collector.rewards.largest)
        weights = (learner.parameters(), normalizer.moments, rewards and rewards.moments)  # before this block's updates
        for parts in zip(*made, strict=True):
            joined = [np.concatenate([part[field] for part in parts]) for field in range(7)]
            extras = {name: np.concatenate([part.extras[name] for part in parts]) for name in parts[0].extras}
            record.steps.append(buffers.Experience(*joined, extras))
            buffer.add(record.steps[-1])
            step, sample = step + sum(len(part.env) for part in parts), None
            for sample in buffer.due():
                batch = sample.batch
                if isinstance(spec, SequenceSpec):
                    seen = algorithm.seen_reward(batch.obs.previous_reward)
                    batch = batch._replace(obs=batch.obs._replace(previous_reward=seen))
                progress = min(1.0, (step - sample.age) / total)
                batch = normalizer.batch(batch)
                [metrics] = learner.update_each([rewards.batch(batch) if rewards else batch], [progress])
                if buffer.needs_priorities:
                    buffer.feedback(sample, np.asarray(metrics.priority))
                if buffer.needs_divergence:
                    buffer.note_divergence(metrics.value(DIVERGENCE))
                record.losses.append(losses(metrics))
            if sample is not None:
                normalizer.after_learning(sample.batch)
            if step >= steps:
                return record._replace(buffer=contents(buffer, num_envs), parameters=learner.parameters())


def losses(metrics: Any) -> dict[str, float]:
    """Return the numbers that an update reports."""
    return {name: metrics.value(name) for name in metrics.names}


def contents(buffer: Any, num_envs: int) -> dict[str, Any]:
    """Return a buffer's state and its rows."""
    return {"state": buffer.state_dict(), "rows": buffer.segment(np.zeros(num_envs, np.int64))}


class Recorder(duetto.Callback):
    """Records a run of duetto.train."""

    def __init__(self) -> None:
        self.record = Record([], [], {}, {})

    def on_start(self, trainer: duetto.Trainer) -> None:
        record, buffer, learner = self.record, trainer.memory, trainer.learner
        add, update_each = buffer.add, learner.update_each

        def adding(step: Any) -> None:
            record.steps.append(step)
            add(step)

        def updating(*batches: Any) -> Any:
            made = update_each(*batches)
            record.losses.extend(map(losses, made))
            return made

        buffer.add, learner.update_each = adding, updating

    def on_end(self, trainer: duetto.Trainer) -> None:
        final = contents(trainer.memory, trainer.stepper.num_envs)
        self.record = self.record._replace(buffer=final, parameters=trainer.learner.parameters())
