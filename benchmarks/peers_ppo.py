"""The peers' PPO, each through its own public interface and its own training loop, as `task` sets it.

Environments are stepped in the way that is the faster for the peer on 2 cores (vectors of 8 stepped alone, in steps/s,
and in training): Breakout in subprocesses (2,800 for 2,300 in Stable-Baselines3, 3,300 for 2,500 in Tianshou),
HalfCheetah in one process (28,000 for 8,400 to 13,000).
"""

from __future__ import annotations

from typing import Any

from clock import Clock
from peers import set_torch_threads
from task import STEPS, OnPolicy


def stable_baselines3(clock: Clock, task: OnPolicy, threads: int) -> None:
    import stable_baselines3 as library

    set_torch_threads(threads)
    model = _stable_baselines(library, clock, task, {"device": task.device})
    clock.count_updates(model.policy.optimizer, "step")
    model.learn(STEPS)


def sbx(clock: Clock, task: OnPolicy, threads: int) -> None:
    import sbx as library

    set_torch_threads(threads)
    model = _stable_baselines(library, clock, task, {})
    clock.count_updates(model, "_one_update")
    model.learn(STEPS)


def _stable_baselines(library: Any, clock: Clock, task: OnPolicy, options: dict[str, Any]) -> Any:
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.utils import LinearSchedule
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    def atari() -> Any:  # ale_py: every subprocess has to import it
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


def skrl_torch(clock: Clock, task: OnPolicy, threads: int) -> None:
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

    _skrl(clock, task, Policy, Value)


def _skrl(clock: Clock, task: OnPolicy, policy: Any, value: Any) -> None:
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
        "learning_rate": task.learning_rate,  # its Adam's epsilon cannot be set
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
