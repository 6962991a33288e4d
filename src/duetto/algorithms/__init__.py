"""The maths: one file per algorithm, no framework, no environment.

To add an algorithm, write its file and name its class here.
"""

from duetto.algorithms.base import Algorithm
from duetto.algorithms.ddpg import DDPG
from duetto.algorithms.dqn import DQN
from duetto.algorithms.ppo import PPO
from duetto.algorithms.r2d2 import R2D2
from duetto.algorithms.td3 import TD3

ALGORITHMS: dict[str, type[Algorithm]] = {algorithm.name(): algorithm for algorithm in (DDPG, DQN, PPO, R2D2, TD3)}
