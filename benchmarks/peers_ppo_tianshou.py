"""Tianshou's PPO, through its public interface and its own training loop, with the settings of `task`."""

from __future__ import annotations

from typing import Any

from clock import Clock
from peers import set_torch_threads
from task import STEPS, OnPolicy


def tianshou(clock: Clock, task: OnPolicy, threads: int) -> None:
    from tianshou.algorithm import PPO
    from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactoryLinear
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.trainer import OnPolicyTrainerParams

    set_torch_threads(threads)
    envs = clock.count_steps(_breakouts(task) if task.images else _cheetahs(task))
    policy, critic = (_convolutions if task.images else _separate)(envs, task)
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
        max_batchsize=task.cycle,  # of what it computes once per rollout
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


def _breakouts(task: OnPolicy) -> Any:
    import ale_py
    import gymnasium
    from gymnasium.wrappers import FrameStackObservation, ResizeObservation
    from tianshou.env import SubprocVectorEnv
    from tianshou.env.atari.atari_wrapper import wrap_deepmind

    gymnasium.register_envs(ale_py)

    def make() -> Any:  # its own wrappers for grey and for stacks fail with NumPy 2.4
        env = wrap_deepmind(gymnasium.make(task.environment, obs_type="grayscale"), warp_frame=False, frame_stack=0)
        return FrameStackObservation(ResizeObservation(env, (84, 84)), 4)

    return SubprocVectorEnv([make] * task.num_envs)


def _cheetahs(task: OnPolicy) -> Any:
    import gymnasium
    from tianshou.env import DummyVectorEnv

    return DummyVectorEnv([lambda: gymnasium.make(task.environment)] * task.num_envs)


def _convolutions(envs: Any, task: OnPolicy) -> tuple[Any, Any]:
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


def _separate(envs: Any, task: OnPolicy) -> tuple[Any, Any]:
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
