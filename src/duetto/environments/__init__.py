"""Environments: `make` returns a `VecEnv` for an id, an environment or a factory.

A `VecEnv` steps N environments, and hides how Gymnasium resets them: it returns only transitions that really happened.

make_env, env_registry                     make an environment from an id, a class in a file, a factory or an instance
errors, silence                            messages for an environment's errors; hide the output of C libraries
vec_env                                    `VecEnv`, the interface to other packages: steps, episodes, states, frames
engines, subproc                           step environments: in a loop, in Gymnasium's vector environments, in workers
spaces, actions, obs_tree                  observations, actions and their masks as plain arrays
validation                                 calls reset and step, and checks the values that they return
exact_resume, rng_state                    `EpisodeRecorder`: seed and actions, to repeat an episode; random generators
goal_env, wrappers, check                  rewards of goals, for hindsight replay; Duetto's wrappers; `duetto check`
device_env                                 environments in JAX: `DeviceEnv`, and N of them that step together
device_adapters                            environments of gymnax, Navix and MuJoCo Playground as `DeviceEnv`
envpool_vector                             EnvPool, which steps environments in C++ threads
atari*, learner_view, minigrid             Atari and MiniGrid: options, engines, lives, missions

Only this package and `testing` import Gymnasium.
"""

from duetto.environments.actions import ActionMap, Structure, structure
from duetto.environments.atari import AtariOptions
from duetto.environments.engines import label_of
from duetto.environments.env_registry import FAMILIES, is_device, registration
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
    "label_of",
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
