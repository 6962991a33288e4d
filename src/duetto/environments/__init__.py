"""Environments as a batch with one behaviour, whatever made them.

`make` turns an id, an instance or a factory into a `Stepper`, which yields real transitions only. Gymnasium is imported
here and nowhere else.
"""

from duetto.environments.actions import ActionMap, Structure, structure
from duetto.environments.atari import AtariOptions
from duetto.environments.copying import wrappers_of as vector_wrappers
from duetto.environments.experts import make_bot
from duetto.environments.families import FAMILIES, Family
from duetto.environments.generators import are_drawn_from as draw_globally
from duetto.environments.goals import Goals
from duetto.environments.keyboard import PlayEndedError, make_player
from duetto.environments.making import is_instance, make, separate
from duetto.environments.minigrid import MiniGridOptions
from duetto.environments.options import complete_options
from duetto.environments.own import modules_of
from duetto.environments.practice import learned_reward
from duetto.environments.recipes import register, registration
from duetto.environments.rehearsal import Rehearsal
from duetto.environments.spaces import Layout, flatten_observation, from_gymnasium, to_gymnasium
from duetto.environments.statistics import running as running_statistics
from duetto.environments.stepping import Episode, Stepper, Transition
from duetto.environments.subprocesses import leave_if_begun_again
from duetto.environments.trees import Tree

__all__ = [
    "FAMILIES",
    "ActionMap",
    "AtariOptions",
    "Episode",
    "Family",
    "Goals",
    "Layout",
    "MiniGridOptions",
    "PlayEndedError",
    "Rehearsal",
    "Stepper",
    "Structure",
    "Transition",
    "Tree",
    "complete_options",
    "draw_globally",
    "flatten_observation",
    "from_gymnasium",
    "is_instance",
    "learned_reward",
    "leave_if_begun_again",
    "make",
    "make_bot",
    "make_player",
    "modules_of",
    "register",
    "registration",
    "running_statistics",
    "separate",
    "structure",
    "to_gymnasium",
    "vector_wrappers",
]
