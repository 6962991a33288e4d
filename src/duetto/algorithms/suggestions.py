"""Suggest options for a misspelled name, or for an option's name in another library."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Duetto's options, and their names in Stable-Baselines3, CleanRL, skrl, Tianshou and Spinning Up.
_NAMES = {
    "learning_rate": "lr actor_lr critic_lr policy_lr q_lr pi_lr",
    "actor_learning_rate": "lr learning_rate actor_lr policy_lr pi_lr",
    "critic_learning_rate": "lr learning_rate critic_lr q_lr",
    "discount": "gamma",
    "tau": "polyak",
    "replay_capacity": "buffer_size memory_size replay_size",
    "num_envs": "n_envs",
    "rollout_steps": "n_steps num_steps rollouts",
    "steps": "total_timesteps timesteps total_steps num_steps",
    "n_step": "n_steps estimation_step n_step_return_horizon",
    "minibatches": "batch_size num_minibatches mini_batches",
    "learning_rate_decay": "anneal_lr",
    "normalize_advantages": "norm_adv normalize_advantage",
    "epochs": "n_epochs repeat_per_collect update_step_num_repetitions update_epochs learning_epochs",
    "gae_lambda": "lam lambda",
    "clip_range": "clip_coef clip_ratio ratio_clip eps_clip",
    "clip_value": "clip_range_vf clip_vloss value_clip",
    "target_kl": "kl_threshold",
    "entropy_coefficient": "ent_coef entropy_loss_scale",
    "temperature": "ent_coef alpha initial_entropy_value",
    "priority_exponent": "alpha",
    "temperature_learning_rate": "entropy_learning_rate alpha_lr",
    "learn_temperature": "learn_entropy",
    "target_entropy_scale": "target_entropy",
    "value_coefficient": "vf_coef value_loss_scale",
    "hidden": "net_arch hidden_sizes layers policy_kwargs",
    "train_every": "train_freq train_frequency",
    "policy_delay": "policy_frequency",
    "target_noise": "policy_noise target_policy_noise smooth_regularization_noise",
    "target_noise_clip": "noise_clip smooth_regularization_clip",
    "exploration_noise": "action_noise",
    "target_period": "target_update_interval target_network_frequency",
    "exploration_steps": "exploration_fraction",
    "exploration_start": "exploration_initial_eps start_e",
    "exploration_end": "exploration_final_eps end_e",
    "random_steps": "start_steps random_timesteps",
    "hindsight": "her goal_selection_strategy",
    "hindsight_share": "n_sampled_goal",
    "evaluate_every": "eval_freq",
    "evaluation_episodes": "n_eval_episodes",
    "device": "cuda use_cuda",
    "checkpoint_every": "save_freq",
    "log_every": "log_interval",
    "vectorization": "vec_env_cls",
}
FOREIGN_NAMES: dict[str, list[str]] = {"learning_starts": []}  # on-policy algorithms have no similar option
for _ours, _theirs in _NAMES.items():
    for _name in _theirs.split():
        FOREIGN_NAMES.setdefault(_name, []).append(_ours)


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that `name` may mean, the most likely first; [] if none is similar."""
    name, known = str(name), list(known)  # YAML may have a number in place of a name
    if name.lower() in FOREIGN_NAMES:
        return [option for option in FOREIGN_NAMES[name.lower()] if option in known]
    same_initial = [each for each in known if each[:1] == name[:1]]  # so that a2c does not suggest sac
    return difflib.get_close_matches(name, same_initial, n=1) or difflib.get_close_matches(name, known, 1, cutoff=0.75)


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "It has") -> str:
    """Return " Did you mean 'tau'?" if a known name is similar, else `otherwise` and a list of all known names."""
    known = list(known)
    if near := nearest(name, known):
        return f" Did you mean {' or '.join(map(repr, near))}?"
    return f" {otherwise}: {', '.join(known)}."
