"""The other libraries' TD3, DDPG, SAC, CrossQ and PPO, each through its own public interface and training loop.

The settings are those of `task`. PPO's environments are stepped in the way that is faster for the library on 2 cores
(steps/s are of vectors of 8, without training): Breakout in subprocesses (2,800 instead of 2,300 in Stable-Baselines3,
3,300 instead of 2,500 in Tianshou), HalfCheetah in one process (28,000 instead of 8,400 to 13,000).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from task import STEPS, Clock, OffPolicy, OnPolicy

SKRL_JAX_CAPACITY = 15_000  # as in skrl's DDPG example; skrl copies the memory at every step (a million: 3 steps/s)


def set_torch_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


# ---------------------------------------------------------------------------------------------------- off-policy
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


# ---------------------------------------------------------------------------------------------------- PPO
def stable_baselines3_ppo(clock: Clock, task: OnPolicy, threads: int) -> None:
    import stable_baselines3 as library

    set_torch_threads(threads)
    model = _stable_baselines_ppo(library, clock, task, {"device": task.device})
    clock.count_updates(model.policy.optimizer, "step")
    model.learn(STEPS)


def sbx_ppo(clock: Clock, task: OnPolicy, threads: int) -> None:
    import sbx as library

    set_torch_threads(threads)
    model = _stable_baselines_ppo(library, clock, task, {})
    clock.count_updates(model, "_one_update")
    model.learn(STEPS)


def _stable_baselines_ppo(library: Any, clock: Clock, task: OnPolicy, options: dict[str, Any]) -> Any:
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.utils import LinearSchedule
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    def atari() -> Any:  # the prefix `ale_py:` makes every subprocess import it
        return make_atari_env(f"ale_py:{task.environment}", task.num_envs, seed=0, vec_env_cls=SubprocVecEnv)

    def cheetahs() -> Any:
        return make_vec_env(task.environment, task.num_envs, seed=0, vec_env_cls=DummyVecEnv)

    rate = task.learning_rate
    model = library.PPO(
        "CnnPolicy" if task.images else "MlpPolicy",
        VecFrameStack(atari(), 4) if task.images else cheetahs(),
        learning_rate=LinearSchedule(rate, 0.0, 1.0) if task.linear else rate,
        n_steps=task.rollout_steps,
        batch_size=task.batch_size,
        n_epochs=task.epochs,
        gamma=task.discount,
        gae_lambda=task.gae_lambda,
        clip_range=task.clip_range,
        ent_coef=task.entropy_coefficient,
        vf_coef=task.value_coefficient,
        max_grad_norm=task.max_grad_norm,
        policy_kwargs={"net_arch": list(task.hidden)},  # Adam's epsilon is 1e-5 by default
        seed=0,
        **options,
    )
    clock.count_steps(model.get_env())
    return model


def skrl_torch_ppo(clock: Clock, task: OnPolicy, threads: int) -> None:
    import torch
    from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
    from torch import nn

    set_torch_threads(threads)

    def layers(inputs: int, outputs: int) -> nn.Module:
        first, second = task.hidden
        return nn.Sequential(
            nn.Linear(inputs, first), nn.Tanh(), nn.Linear(first, second), nn.Tanh(), nn.Linear(second, outputs)
        )

    class Policy(GaussianMixin, Model):
        def __init__(self, **spaces: Any) -> None:
            Model.__init__(self, **spaces)
            GaussianMixin.__init__(self)
            self.net = layers(self.num_observations, self.num_actions)
            self.log_std = nn.Parameter(torch.zeros(self.num_actions))

        def compute(self, inputs: dict[str, Any], role: str) -> tuple[Any, dict[str, Any]]:
            return self.net(inputs["observations"]), {"log_std": self.log_std}

    class Value(DeterministicMixin, Model):
        def __init__(self, **spaces: Any) -> None:
            Model.__init__(self, **spaces)
            DeterministicMixin.__init__(self)
            self.net = layers(self.num_observations, 1)

        def compute(self, inputs: dict[str, Any], role: str) -> tuple[Any, dict[str, Any]]:
            return self.net(inputs["observations"]), {}

    _train_skrl_ppo(clock, task, Policy, Value)


def _train_skrl_ppo(clock: Clock, task: OnPolicy, policy: Any, value: Any) -> None:
    import gymnasium
    from skrl.agents.torch.ppo import PPO
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.memories.torch import RandomMemory
    from skrl.trainers.torch import SequentialTrainer

    def vector() -> Any:
        return clock.count_steps(gymnasium.make_vec(task.environment, task.num_envs, vectorization_mode="sync"))

    env = wrap_env(vector() if task.num_envs > 1 else clock.environment(), wrapper="gymnasium", verbose=False)
    spaces: dict[str, Any] = {
        "observation_space": env.observation_space,
        "action_space": env.action_space,
        "device": env.device,
    }
    cfg: dict[str, Any] = {
        "rollouts": task.rollout_steps,
        "learning_epochs": task.epochs,
        "mini_batches": task.minibatches,
        "learning_rate": task.learning_rate,  # the epsilon of skrl's Adam cannot be set
        "discount_factor": task.discount,
        "gae_lambda": task.gae_lambda,
        "ratio_clip": task.clip_range,
        "value_clip": 0.0,
        "value_loss_scale": task.value_coefficient,
        "entropy_loss_scale": task.entropy_coefficient,
        "grad_norm_clip": task.max_grad_norm,
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    }
    agent = PPO(
        models={"policy": policy(**spaces), "value": value(**spaces)},
        memory=RandomMemory(
            memory_size=task.rollout_steps, num_envs=task.num_envs, device=env.device, replacement=False
        ),
        cfg=cfg,
        **spaces,
    )
    clock.count_updates(agent.optimizer, "step")
    timesteps = STEPS // task.num_envs
    trainer = SequentialTrainer(
        env=env, agents=agent, cfg={"timesteps": timesteps, "headless": True, "disable_progressbar": True}
    )
    trainer.train()


def tianshou_ppo(clock: Clock, task: OnPolicy, threads: int) -> None:
    from tianshou.algorithm import PPO
    from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactoryLinear
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.trainer import OnPolicyTrainerParams

    set_torch_threads(threads)
    envs = clock.count_steps(_tianshou_breakouts(task) if task.images else _tianshou_cheetahs(task))
    policy, critic = (_tianshou_convolutions if task.images else _tianshou_separate)(envs, task)
    optimizer = AdamOptimizerFactory(lr=task.learning_rate, eps=task.adam_epsilon)
    if task.linear:
        optimizer.with_lr_scheduler_factory(LRSchedulerFactoryLinear(1, STEPS, task.cycle))
    learner = PPO(
        policy=policy,
        critic=critic,
        optim=optimizer,
        eps_clip=task.clip_range,
        vf_coef=task.value_coefficient,
        ent_coef=task.entropy_coefficient,
        max_grad_norm=task.max_grad_norm,
        gamma=task.discount,
        gae_lambda=task.gae_lambda,
        max_batchsize=task.cycle,  # for the values, which Tianshou computes once per rollout
    )
    clock.count_updates(learner.optim, "step")
    collector = Collector(learner, envs, VectorReplayBuffer(task.cycle, task.num_envs))
    collector.reset()
    learner.run_training(
        OnPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=STEPS,
            collection_step_num_env_steps=task.cycle,
            update_step_num_repetitions=task.epochs,
            batch_size=task.batch_size,
            verbose=False,
            show_progress=False,
        )
    )


def _tianshou_breakouts(task: OnPolicy) -> Any:
    import ale_py
    import gymnasium
    from gymnasium.wrappers import FrameStackObservation, ResizeObservation
    from tianshou.env import SubprocVectorEnv
    from tianshou.env.atari.atari_wrapper import wrap_deepmind

    gymnasium.register_envs(ale_py)

    def make() -> Any:  # Tianshou's wrappers for grey and for stacks fail with NumPy 2.4
        env = wrap_deepmind(gymnasium.make(task.environment, obs_type="grayscale"), warp_frame=False, frame_stack=0)
        return FrameStackObservation(ResizeObservation(env, (84, 84)), 4)

    return SubprocVectorEnv([make] * task.num_envs)


def _tianshou_cheetahs(task: OnPolicy) -> Any:
    import gymnasium
    from tianshou.env import DummyVectorEnv

    return DummyVectorEnv([lambda: gymnasium.make(task.environment)] * task.num_envs)


def _tianshou_convolutions(envs: Any, task: OnPolicy) -> tuple[Any, Any]:
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.env.atari.atari_network import DQNet, ScaledObsInputActionReprNet, layer_init
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

    actions = envs.action_space[0]
    cnn = DQNet(
        c=4, h=84, w=84, action_shape=actions.n, features_only=True, output_dim_added_layer=512, layer_init=layer_init
    )
    shared = ScaledObsInputActionReprNet(cnn)
    actor = DiscreteActor(preprocess_net=shared, action_shape=actions.n, softmax_output=False)
    policy = ProbabilisticActorPolicy(
        actor=actor, dist_fn=_categorical, action_space=actions, action_scaling=False, action_bound_method=None
    )
    return policy, DiscreteCritic(preprocess_net=shared)


def _tianshou_separate(envs: Any, task: OnPolicy) -> tuple[Any, Any]:
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
    from torch import nn

    actions, size = envs.action_space[0], envs.observation_space[0].shape

    def net() -> Any:
        return Net(state_shape=size, hidden_sizes=task.hidden, activation=nn.Tanh)

    actor = ContinuousActorProbabilistic(preprocess_net=net(), action_shape=actions.shape, unbounded=True)
    policy = ProbabilisticActorPolicy(actor=actor, dist_fn=_gaussian, action_space=actions)
    return policy, ContinuousCritic(preprocess_net=net())


def _categorical(logits: Any) -> Any:
    from torch.distributions import Categorical

    return Categorical(logits=logits)


def _gaussian(parameters: tuple[Any, Any]) -> Any:
    from torch.distributions import Independent, Normal

    return Independent(Normal(*parameters), 1)
