"""The peers, each through its own public interface and its own training loop, with the settings of `task`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from task import (
    BATCH,
    CAPACITY,
    DISCOUNT,
    HIDDEN,
    LEARNING_RATE,
    NOISE,
    POLICY_DELAY,
    RANDOM_STEPS,
    SKRL_JAX_CAPACITY,
    STEPS,
    TARGET_CLIP,
    TARGET_NOISE,
    TAU,
    Clock,
)


def stable_baselines3(clock: Clock, algorithm: str, threads: int) -> None:
    import stable_baselines3 as library

    _set_torch_threads(threads)
    _train_stable_baselines(library, clock, algorithm, {"device": "cpu"})


def sbx(clock: Clock, algorithm: str, threads: int) -> None:
    import sbx as library

    _set_torch_threads(threads)
    _train_stable_baselines(library, clock, algorithm, {"qf_learning_rate": LEARNING_RATE})


def _train_stable_baselines(library: Any, clock: Clock, algorithm: str, options: dict[str, Any]) -> None:
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise

    size = clock.action_space.shape
    if algorithm == "td3":
        options |= {
            "policy_delay": POLICY_DELAY,
            "target_policy_noise": TARGET_NOISE,
            "target_noise_clip": TARGET_CLIP,
        }
    model = getattr(library, algorithm.upper())(
        "MlpPolicy",
        clock,
        learning_rate=LEARNING_RATE,
        buffer_size=CAPACITY,
        learning_starts=RANDOM_STEPS,
        batch_size=BATCH,
        tau=TAU,
        gamma=DISCOUNT,
        train_freq=1,
        gradient_steps=1,
        action_noise=NormalActionNoise(np.zeros(size), np.full(size, NOISE)),
        policy_kwargs={"net_arch": list(HIDDEN)},
        seed=0,
        **options,
    )
    clock.watch(model, "train")
    model.learn(STEPS)


def skrl_torch(clock: Clock, algorithm: str, threads: int) -> None:
    import torch
    from skrl.models.torch import DeterministicMixin, Model
    from torch import nn

    _set_torch_threads(threads)

    def layers(inputs: int, outputs: int) -> list[nn.Module]:
        first, second = HIDDEN
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

    _train_skrl("torch", clock, algorithm, Actor, Critic)


def skrl_jax(clock: Clock, algorithm: str, threads: int) -> None:
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
            for units in HIDDEN:
                x = nn.relu(nn.Dense(units)(x))
            return nn.tanh(nn.Dense(self.num_actions)(x)), {}

    class Critic(DeterministicMixin, Model):
        __init__ = initialize

        @nn.compact
        def __call__(self, inputs: dict[str, Any], role: str) -> tuple[Any, dict[str, Any]]:
            x = jnp.concatenate([inputs["observations"], inputs["taken_actions"]], axis=-1)
            for units in HIDDEN:
                x = nn.relu(nn.Dense(units)(x))
            return nn.Dense(1)(x), {}

    _train_skrl("jax", clock, algorithm, Actor, Critic)


def _train_skrl(backend: str, clock: Clock, algorithm: str, actor: Any, critic: Any) -> None:
    def part(name: str) -> Any:
        return import_module(f"skrl.{name}.{backend}")

    env = import_module(f"skrl.envs.wrappers.{backend}").wrap_env(clock, wrapper="gymnasium", verbose=False)
    critics = ("critic_1", "critic_2") if algorithm == "td3" else ("critic",)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": env.device}
    models = {role: actor(**spaces) for role in ("policy", "target_policy")}
    models |= {target + role: critic(**spaces) for role in critics for target in ("", "target_")}
    if backend == "jax":
        for role, model in models.items():
            model.init_state_dict(role=role)
    capacity = SKRL_JAX_CAPACITY if backend == "jax" else CAPACITY
    gaussian = import_module(f"skrl.resources.noises.{backend}").GaussianNoise
    cfg: dict[str, Any] = {
        "batch_size": BATCH,
        "discount_factor": DISCOUNT,
        "polyak": TAU,
        "learning_rate": LEARNING_RATE,
        "random_timesteps": RANDOM_STEPS,
        "learning_starts": RANDOM_STEPS,
        "exploration_noise": gaussian,
        "exploration_noise_kwargs": {"mean": 0.0, "std": NOISE},
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    }
    if algorithm == "td3":
        cfg |= {
            "policy_delay": POLICY_DELAY,
            "smooth_regularization_noise": gaussian,
            "smooth_regularization_noise_kwargs": {"mean": 0.0, "std": TARGET_NOISE},
            "smooth_regularization_clip": TARGET_CLIP,
        }
    agent = getattr(import_module(f"skrl.agents.{backend}.{algorithm}"), algorithm.upper())(
        models=models,
        memory=part("memories").RandomMemory(memory_size=capacity, num_envs=1, device=env.device, replacement=True),
        cfg=cfg,
        **spaces,
    )
    clock.watch(agent, "update")
    trainer = part("trainers").SequentialTrainer(
        env=env, agents=agent, cfg={"timesteps": STEPS, "headless": True, "disable_progressbar": True}
    )
    trainer.train()


def tianshou(clock: Clock, algorithm: str, threads: int) -> None:
    from tianshou.algorithm import DDPG, TD3
    from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.exploration import GaussianNoise
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousCritic

    _set_torch_threads(threads)
    obs, action = clock.observation_space.shape, clock.action_space.shape

    def critic() -> Any:
        net = Net(state_shape=obs, action_shape=action, hidden_sizes=HIDDEN, concat=True)
        return ContinuousCritic(preprocess_net=net)

    options: dict[str, Any] = {
        "policy": ContinuousDeterministicPolicy(
            actor=ContinuousActorDeterministic(
                preprocess_net=Net(state_shape=obs, hidden_sizes=HIDDEN), action_shape=action
            ),
            exploration_noise=GaussianNoise(sigma=NOISE),
            action_space=clock.action_space,
        ),
        "policy_optim": AdamOptimizerFactory(lr=LEARNING_RATE),
        "critic": critic(),
        "critic_optim": AdamOptimizerFactory(lr=LEARNING_RATE),
        "tau": TAU,
        "gamma": DISCOUNT,
    }
    if algorithm == "td3":
        options |= {
            "critic2": critic(),
            "update_actor_freq": POLICY_DELAY,
            "policy_noise": TARGET_NOISE,
            "noise_clip": TARGET_CLIP,
        }
    learner = (TD3 if algorithm == "td3" else DDPG)(**options)
    collector = Collector(
        learner, DummyVectorEnv([lambda: clock]), VectorReplayBuffer(CAPACITY, 1), exploration_noise=True
    )
    collector.reset()
    collector.collect(n_step=RANDOM_STEPS, random=True)
    clock.watch(learner, "_update_with_batch")
    learner.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=STEPS,
            collection_step_num_env_steps=1,
            update_step_num_gradient_steps_per_sample=1.0,
            batch_size=BATCH,
            verbose=False,
            show_progress=False,
        )
    )


def _set_torch_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
