"""Duetto's own runs, as a user would write them, with the settings of `task`."""

from __future__ import annotations

from typing import Any

from clock import Clock
from task import STEPS, OffPolicy, OnPolicy


def off_policy(
    backend: str, clock: Clock, task: OffPolicy, threads: int, precision: str, act_behind: bool = False
) -> None:
    import duetto

    shared: dict[str, Any] = {
        "random_steps": task.random_steps,
        "learning_starts": task.random_steps,
        "actor_learning_rate": task.learning_rate,
        "critic_learning_rate": task.learning_rate,
        "hidden": task.hidden,
        "critic_hidden": task.critic_hidden,
        "batch_size": task.batch_size,
        "replay_capacity": task.replay_capacity,
        "discount": task.discount,
    }
    noise, targets = {"exploration_noise": task.exploration_noise}, {"tau": task.tau}
    temperature = {"temperature_learning_rate": task.learning_rate}
    smoothing = {"target_noise": task.target_noise, "target_noise_clip": (-task.target_clip, task.target_clip)}
    smoothing |= {"target_update": "every_step" if task.every_update else "with_actor"}
    delay = {"policy_delay": task.policy_delay}
    kinds: dict[str, Any] = {
        "ddpg": lambda: duetto.DDPG(**shared, **noise, **targets),
        "td3": lambda: duetto.TD3(**shared, **noise, **targets, **delay, **smoothing),
        "sac": lambda: duetto.SAC(**shared, **targets, **temperature),
        "crossq": lambda: duetto.CrossQ(
            **shared,
            **temperature,
            **delay,
            adam_beta1=0.5,
            network="batch_renorm",
            initializer_gain=1.7320508,
        ),
    }

    def watch(session: Any) -> None:
        if session.step == 1:
            clock.count_updates(session.learner, "update")

    options = _options(backend, task.device, threads, precision) | {"act_behind": act_behind}
    duetto.train(kinds[task.algorithm](), clock.environment(), callbacks=[watch], **options)


def on_policy(backend: str, clock: Clock, task: OnPolicy, threads: int, precision: str) -> None:
    import duetto

    algorithm = duetto.PPO(
        rollout_steps=task.rollout_steps,
        epochs=task.epochs,
        minibatches=task.minibatches,
        learning_rate=task.learning_rate,
        learning_rate_decay=task.decay,
        adam_epsilon=task.adam_epsilon,
        clip_range=task.clip_range,
        entropy_coefficient=task.entropy_coefficient,
        value_coefficient=task.value_coefficient,
        max_grad_norm=task.max_grad_norm,
        discount=task.discount,
        gae_lambda=task.gae_lambda,
        normalize_observations=False,
        normalize_rewards=False,
        hidden=task.hidden,
        activation="tanh",
        shared_torso=task.images,
    )

    clock = clock.of_all(task.seeds)

    def watch(session: Any) -> None:
        if session.config.run.seed == task.seeds - 1:  # all have made this step
            clock.at(session.step * task.seeds, session.learner.updates * task.minibatches * task.seeds)  # of epochs

    duetto.train(
        algorithm,
        task.environment,
        seeds=range(task.seeds) if task.seeds > 1 else None,
        num_envs=task.num_envs,
        environment_options={"episodic_life": True, "clip_rewards": True} if task.images else {},
        callbacks=[watch],
        **_options(backend, task.device, threads, precision),
    )


def _options(backend: str, device: str, threads: int, precision: str) -> dict[str, Any]:
    """Evaluations and checkpoints are off; metrics.jsonl and TensorBoard events stay on, as they are by default."""
    return {
        "steps": STEPS,
        "backend": backend,
        "device": device,
        "precision": precision,
        "threads": threads,
        "evaluate_every": 0,
        "checkpoint_every": 0,
    }
