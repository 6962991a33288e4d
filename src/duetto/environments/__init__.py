"""Environments: `make` turns an id, an instance or a factory into a `VecEnv`, which yields real transitions only.

make_env, env_registry                     what a user names: families of ids, classes in files, factories, instances
errors, silence                            messages: faults of an environment, output of libraries
vec_env                                    `VecEnv`, the door of this room: steps, episodes, states, frames
engines, subproc                           what steps: our loop, a Gymnasium vector environment, processes
spaces, actions, obs_tree                  observations, actions and their masks as plain arrays
validation                                 the values of each step: checked
exact_resume, rng_state                    exact resume: `EpisodeRecorder`, around every environment, repeats episodes
goal_env, wrappers, check                  hindsight's goals; velocities and resets; `duetto check`
device_env                                 environments of arrays: `DeviceEnv`, and N of them
device_adapters                            such environments of gymnax, Navix and MuJoCo Playground
envpool_vector                             EnvPool, which steps in C++ threads
atari*, learner_view, minigrid             Atari and MiniGrid: options, engines, lives, missions

Only this package imports Gymnasium.
"""

from duetto.environments.actions import ActionMap, Structure, structure
from duetto.environments.atari import AtariOptions
from duetto.environments.env_registry import FAMILIES, Family, is_device, registration
from duetto.environments.env_registry import register_spec as register
from duetto.environments.exact_resume import attributes, obstacles
from duetto.environments.goal_env import GoalEnv
from duetto.environments.learner_view import learned_reward
from duetto.environments.make_env import complete_options, is_instance, make, make_eval
from duetto.environments.obs_tree import Tree
from duetto.environments.spaces import Layout, from_gymnasium, to_gymnasium
from duetto.environments.validation import running_statistics
from duetto.environments.vec_env import Episode, Transition, VecEnv

__all__ = [
    "FAMILIES",
    "ActionMap",
    "AtariOptions",
    "Episode",
    "Family",
    "GoalEnv",
    "Layout",
    "Structure",
    "Transition",
    "Tree",
    "VecEnv",
    "attributes",
    "complete_options",
    "from_gymnasium",
    "is_device",
    "is_instance",
    "learned_reward",
    "make",
    "make_eval",
    "obstacles",
    "register",
    "registration",
    "running_statistics",
    "structure",
    "to_gymnasium",
]
