"""The option that a person must have meant: by how it is spelt, or by what other libraries call it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# What Stable-Baselines3, CleanRL, skrl, Tianshou and Spinning Up call what is called so here, as far as there is one.
ELSEWHERE: dict[str, tuple[str, ...]] = {
    "lr": ("learning_rate", "actor_learning_rate", "critic_learning_rate"),
    "learning_rate": ("actor_learning_rate", "critic_learning_rate"),
    "actor_lr": ("actor_learning_rate", "learning_rate"),
    "critic_lr": ("critic_learning_rate", "learning_rate"),
    "policy_lr": ("actor_learning_rate", "learning_rate"),
    "q_lr": ("critic_learning_rate", "learning_rate"),
    "pi_lr": ("actor_learning_rate", "learning_rate"),
    "gamma": ("discount",),
    "polyak": ("tau",),
    "buffer_size": ("replay_capacity",),
    "memory_size": ("replay_capacity",),
    "replay_size": ("replay_capacity",),
    "total_timesteps": ("steps",),
    "timesteps": ("steps",),
    "total_steps": ("steps",),
    "n_envs": ("num_envs",),
    "n_steps": ("rollout_steps", "n_step"),
    "num_steps": ("rollout_steps", "steps"),
    "rollouts": ("rollout_steps",),
    "batch_size": ("minibatches",),
    "anneal_lr": ("learning_rate_decay",),
    "norm_adv": ("normalize_advantages",),
    "normalize_advantage": ("normalize_advantages",),
    "n_epochs": ("epochs",),
    "repeat_per_collect": ("epochs",),
    "update_step_num_repetitions": ("epochs",),
    "update_epochs": ("epochs",),
    "learning_epochs": ("epochs",),
    "num_minibatches": ("minibatches",),
    "mini_batches": ("minibatches",),
    "lam": ("gae_lambda",),
    "lambda": ("gae_lambda",),
    "clip_coef": ("clip_range",),
    "clip_ratio": ("clip_range",),
    "ratio_clip": ("clip_range",),
    "eps_clip": ("clip_range",),
    "clip_range_vf": ("clip_value",),
    "clip_vloss": ("clip_value",),
    "value_clip": ("clip_value",),
    "kl_threshold": ("target_kl",),
    "ent_coef": ("entropy_coefficient", "temperature"),
    "entropy_loss_scale": ("entropy_coefficient",),
    "alpha": ("temperature", "priority_exponent"),
    "initial_entropy_value": ("temperature",),
    "entropy_learning_rate": ("temperature_learning_rate",),
    "alpha_lr": ("temperature_learning_rate",),
    "learn_entropy": ("learn_temperature",),
    "target_entropy": ("target_entropy_scale",),
    "vf_coef": ("value_coefficient",),
    "value_loss_scale": ("value_coefficient",),
    "net_arch": ("hidden",),
    "hidden_sizes": ("hidden",),
    "layers": ("hidden",),
    "learning_starts": (),
    "train_freq": ("train_every",),
    "train_frequency": ("train_every",),
    "policy_frequency": ("policy_delay",),
    "policy_noise": ("target_noise",),
    "target_policy_noise": ("target_noise",),
    "smooth_regularization_noise": ("target_noise",),
    "noise_clip": ("target_noise_clip",),
    "smooth_regularization_clip": ("target_noise_clip",),
    "estimation_step": ("n_step",),
    "n_step_return_horizon": ("n_step",),
    "action_noise": ("exploration_noise",),
    "target_update_interval": ("target_period",),
    "target_network_frequency": ("target_period",),
    "exploration_fraction": ("exploration_steps",),
    "exploration_initial_eps": ("exploration_start",),
    "exploration_final_eps": ("exploration_end",),
    "start_e": ("exploration_start",),
    "end_e": ("exploration_end",),
    "start_steps": ("random_steps",),
    "random_timesteps": ("random_steps",),
    "her": ("hindsight",),
    "goal_selection_strategy": ("hindsight",),
    "n_sampled_goal": ("hindsight_share",),
    "eval_freq": ("evaluate_every",),
    "n_eval_episodes": ("evaluation_episodes",),
    "cuda": ("device",),
    "use_cuda": ("device",),
    "save_freq": ("checkpoint_every",),
    "log_interval": ("log_every",),
    "vec_env_cls": ("vectorization",),
    "policy_kwargs": ("hidden",),
}

# Where the same number would mean something else here.
UNITS = {
    "target_update_interval": "in updates, not in steps of the environment",
    "target_network_frequency": "in updates, not in steps of the environment",
    "exploration_fraction": "in steps, no share of the run",
    "n_sampled_goal": "a share of each batch: 4 goals are 0.8",
    "batch_size": "how many, not how large",
    "target_entropy": "a factor of the usual target, not the target",
    "clip_range_vf": "yes or no; the range is clip_range",
    "value_clip": "yes or no; the range is clip_range",
    "smooth_regularization_noise": "its std",
    "action_noise": "its std",
}


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names that `name` may stand for, the likeliest first; often none."""
    name, known = str(name), list(known)  # a file of YAML may have a number where a name should be
    if name.lower() in ELSEWHERE:  # and where the algorithm has nothing of the kind, no other option is meant either
        return [here for here in ELSEWHERE[name.lower()] if here in known]
    return difflib.get_close_matches(name, known, n=1)


def units(name: str) -> str:
    """A remark on a number's unit where others mean another by that name, " (in updates)" for example; else ""."""
    return f" ({UNITS[name]})" if name in UNITS else ""


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "It has") -> str:
    """ " Did you mean 'tau'?" where a known name is near, else all known names after the word `otherwise`."""
    known = list(known)
    if near := nearest(name, known):
        return f" Did you mean {' or '.join(map(repr, near))}{units(name)}?"
    return f" {otherwise}: {', '.join(known)}."
