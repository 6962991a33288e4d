"""The peers' TD3 and DDPG, and SAC and CrossQ of some, each through its own public interface and training loop.

The settings are those of `task`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from clock import Clock
from task import STEPS, OffPolicy

SKRL_JAX_CAPACITY = 15_000  # of its DDPG example: it copies the whole memory at every step, 3 steps/s with a million


def stable_baselines3(clock: Clock, task: OffPolicy, threads: int) -> None:
    import stable_baselines3 as library

    set_torch_threads(threads)
    _train_stable_baselines(library, clock, task, {"device": task.device})


def sbx(clock: Clock, task: OffPolicy, threads: int) -> None:
    import sbx as library

    set_torch_threads(threads)
    _train_stable_baselines(library, clock, task, {"qf_learning_rate": task.learning_rate})


def _train_stable_baselines(library: Any, clock: Clock, task: OffPolicy, options: dict[str, Any]) -> None:
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise

    env = clock.environment()
    size = env.action_space.shape
    if task.twins:
        options |= {"target_policy_noise": task.target_noise, "target_noise_clip": task.target_clip}
    if task.twins or task.algorithm == "crossq":
        options |= {"policy_delay": task.policy_delay}
    if not task.soft:
        options |= {"action_noise": NormalActionNoise(np.zeros(size), np.full(size, task.exploration_noise))}
    if task.algorithm != "crossq":
        options |= {"tau": task.tau}
    names = {"crossq": "CrossQ"}
    model = getattr(library, names.get(task.algorithm, task.algorithm.upper()))(
        "MlpPolicy",
        env,
        learning_rate=task.learning_rate,
        buffer_size=task.replay_capacity,
        learning_starts=task.random_steps,
        batch_size=task.batch_size,
        gamma=task.discount,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": {"pi": list(task.hidden), "qf": list(task.critic_hidden)}},
        seed=0,
        **options,
    )
    clock.count_updates(model, "train")
    model.learn(STEPS)


def skrl_torch(clock: Clock, task: OffPolicy, threads: int) -> None:
    import torch
    from skrl.models.torch import DeterministicMixin, Model
    from torch import nn

    set_torch_threads(threads)

    def layers(inputs: int, outputs: int) -> list[nn.Module]:
        first, second = task.hidden
        return [nn.Linear(inputs, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, outputs)]

    class Network(DeterministicMixin, Model):
        def __init__(self, **spaces: Any) -> None:
            Model.__init__(self, **spaces)
            DeterministicMixin.__init__(self)

    class Actor(Network):
        def __init__(self, **spaces: Any) -> None:
            super().__init__(**spaces)
            self.net = nn.Sequential(*layers(self.num_observations, self.num_actions), nn.Tanh())

        def compute(self, inputs: dict[str, Any], role: str) -> tuple[Any, dict[str, Any]]:
            return self.net(inputs["observations"]), {}

    class Critic(Network):
        def __init__(self, **spaces: Any) -> None:
            super().__init__(**spaces)
            self.net = nn.Sequential(*layers(self.num_observations + self.num_actions, 1))

        def compute(self, inputs: dict[str, Any], role: str) -> tuple[Any, dict[str, Any]]:
            return self.net(torch.cat([inputs["observations"], inputs["taken_actions"]], dim=1)), {}

    _train_skrl("torch", clock, task, Actor, Critic)


def skrl_jax(clock: Clock, task: OffPolicy, threads: int) -> None:
    import jax.numpy as jnp
    from flax import linen as nn
    from skrl.models.jax import DeterministicMixin, Model

    def initialize(
        network: Any, **options: Any
    ) -> None:  # each class needs its own: Flax would replace an inherited one
        Model.__init__(network, **options)
        DeterministicMixin.__init__(network)

    class Actor(DeterministicMixin, Model):
        __init__ = initialize

        @nn.compact
        def __call__(self, inputs: dict[str, Any], role: str) -> tuple[Any, dict[str, Any]]:
            x = inputs["observations"]
            for units in task.hidden:
                x = nn.relu(nn.Dense(units)(x))
            return nn.tanh(nn.Dense(self.num_actions)(x)), {}

    class Critic(DeterministicMixin, Model):
        __init__ = initialize

        @nn.compact
        def __call__(self, inputs: dict[str, Any], role: str) -> tuple[Any, dict[str, Any]]:
            x = jnp.concatenate([inputs["observations"], inputs["taken_actions"]], axis=-1)
            for units in task.hidden:
                x = nn.relu(nn.Dense(units)(x))
            return nn.Dense(1)(x), {}

    _train_skrl("jax", clock, task, Actor, Critic)


def _train_skrl(backend: str, clock: Clock, task: OffPolicy, actor: Any, critic: Any) -> None:
    def part(name: str) -> Any:
        return import_module(f"skrl.{name}.{backend}")

    wrap_env = import_module(f"skrl.envs.wrappers.{backend}").wrap_env
    env = wrap_env(clock.environment(), wrapper="gymnasium", verbose=False)
    critics = ("critic_1", "critic_2") if task.twins else ("critic",)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": env.device}
    models = {role: actor(**spaces) for role in ("policy", "target_policy")}
    models |= {target + role: critic(**spaces) for role in critics for target in ("", "target_")}
    if backend == "jax":
        for role, model in models.items():
            model.init_state_dict(role=role)
    capacity = SKRL_JAX_CAPACITY if backend == "jax" else task.replay_capacity
    gaussian = import_module(f"skrl.resources.noises.{backend}").GaussianNoise
    cfg: dict[str, Any] = {
        "batch_size": task.batch_size,
        "discount_factor": task.discount,
        "polyak": task.tau,
        "learning_rate": task.learning_rate,
        "random_timesteps": task.random_steps,
        "learning_starts": task.random_steps,
        "exploration_noise": gaussian,
        "exploration_noise_kwargs": {"mean": 0.0, "std": task.exploration_noise},
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    }
    if task.twins:
        cfg |= {
            "policy_delay": task.policy_delay,
            "smooth_regularization_noise": gaussian,
            "smooth_regularization_noise_kwargs": {"mean": 0.0, "std": task.target_noise},
            "smooth_regularization_clip": task.target_clip,
        }
    agent = getattr(import_module(f"skrl.agents.{backend}.{task.algorithm}"), task.algorithm.upper())(
        models=models,
        memory=part("memories").RandomMemory(memory_size=capacity, num_envs=1, device=env.device, replacement=True),
        cfg=cfg,
        **spaces,
    )
    clock.count_updates(agent, "update")
    trainer = part("trainers").SequentialTrainer(
        env=env, agents=agent, cfg={"timesteps": STEPS, "headless": True, "disable_progressbar": True}
    )
    trainer.train()


def tianshou(clock: Clock, task: OffPolicy, threads: int) -> None:
    from tianshou.algorithm import DDPG, TD3
    from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.exploration import GaussianNoise
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousCritic

    set_torch_threads(threads)
    env = clock.environment()
    obs, action = env.observation_space.shape, env.action_space.shape

    def critic() -> Any:
        net = Net(state_shape=obs, action_shape=action, hidden_sizes=task.hidden, concat=True)
        return ContinuousCritic(preprocess_net=net)

    options: dict[str, Any] = {
        "policy": ContinuousDeterministicPolicy(
            actor=ContinuousActorDeterministic(
                preprocess_net=Net(state_shape=obs, hidden_sizes=task.hidden), action_shape=action
            ),
            exploration_noise=GaussianNoise(sigma=task.exploration_noise),
            action_space=env.action_space,
        ),
        "policy_optim": AdamOptimizerFactory(lr=task.learning_rate),
        "critic": critic(),
        "critic_optim": AdamOptimizerFactory(lr=task.learning_rate),
        "tau": task.tau,
        "gamma": task.discount,
    }
    if task.twins:
        options |= {
            "critic2": critic(),
            "update_actor_freq": task.policy_delay,
            "policy_noise": task.target_noise,
            "noise_clip": task.target_clip,
        }
    learner = (TD3 if task.twins else DDPG)(**options)
    collector = Collector(
        learner, DummyVectorEnv([lambda: env]), VectorReplayBuffer(task.replay_capacity, 1), exploration_noise=True
    )
    collector.reset()
    collector.collect(n_step=task.random_steps, random=True)
    clock.count_updates(learner, "_update_with_batch")
    learner.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=STEPS,
            collection_step_num_env_steps=1,
            update_step_num_gradient_steps_per_sample=1.0,
            batch_size=task.batch_size,
            verbose=False,
            show_progress=False,
        )
    )


def set_torch_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
