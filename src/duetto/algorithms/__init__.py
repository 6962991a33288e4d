"""The maths: one file per algorithm, no framework, no environment.

To add an algorithm, write its file and name its class here.
"""

from duetto.algorithms.base import Algorithm
from duetto.algorithms.bc import BC
from duetto.algorithms.ddpg import DDPG
from duetto.algorithms.dqfd import DQfD
from duetto.algorithms.dqn import DQN
from duetto.algorithms.ppo import PPO
from duetto.algorithms.r2d2 import R2D2
from duetto.algorithms.r2d3 import R2D3
from duetto.algorithms.sac import SAC
from duetto.algorithms.td3 import TD3

ALGORITHMS: dict[str, type[Algorithm]] = {
    algorithm.name(): algorithm for algorithm in (BC, DDPG, DQfD, DQN, PPO, R2D2, R2D3, SAC, TD3)
}
