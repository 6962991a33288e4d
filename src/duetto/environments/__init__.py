"""Environments: `make` turns an id, an instance or a factory into a `VecEnv`, which yields real transitions only.

Only this package imports Gymnasium.
"""

from duetto.environments.actions import ActionMap, Structure, structure
from duetto.environments.atari import AtariOptions
from duetto.environments.copying import wrappers_of as vector_wrappers
from duetto.environments.device_registry import is_device
from duetto.environments.env_registry import FAMILIES, Family
from duetto.environments.goal_env import GoalEnv
from duetto.environments.learner_view import learned_reward
from duetto.environments.make_env import complete_options, is_instance, make, make_eval
from duetto.environments.minigrid import MiniGridOptions
from duetto.environments.normalizer_check import running as running_statistics
from duetto.environments.obs_tree import Tree
from duetto.environments.pickling import register, registration
from duetto.environments.replay import draw_globally, obstacles
from duetto.environments.spaces import Layout, from_gymnasium, to_gymnasium
from duetto.environments.subproc import leave_if_begun_again
from duetto.environments.vec_env import Episode, Transition, VecEnv

__all__ = [
    "FAMILIES",
    "ActionMap",
    "AtariOptions",
    "Episode",
    "Family",
    "GoalEnv",
    "Layout",
    "MiniGridOptions",
    "Structure",
    "Transition",
    "Tree",
    "VecEnv",
    "complete_options",
    "draw_globally",
    "from_gymnasium",
    "is_device",
    "is_instance",
    "learned_reward",
    "leave_if_begun_again",
    "make",
    "make_eval",
    "obstacles",
    "register",
    "registration",
    "running_statistics",
    "structure",
    "to_gymnasium",
    "vector_wrappers",
]
