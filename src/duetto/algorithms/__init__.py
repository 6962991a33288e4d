"""The algorithms, one file each: losses, and which networks an update changes. None imports PyTorch, JAX or Gymnasium.

    ddpg, td3, sac, discrete_sac, crossq, tqc, flashsac    actor-critics with a replay buffer
    dqn, r2d2                                              Q-learning with discrete actions
    dqfd, r2d3, bc                                         learning from demonstrations
    ppo                                                    learning from rollouts
    base                                                   Algorithm, batches, specs of buffers and optimizers
    off_policy                                             options of all algorithms except ppo
    actor_critic                                           what actor-critics share: options, networks, optimizers
    exploration                                            noise on actions, ε-greedy, sampling the policy
    her                                                    hindsight goals: the method, the check of environments
    options                                                bounds of options, groups in `--help`, ranges for `tune`
    suggestions                                            "did you mean" hints

To add an algorithm, write its file and import its class here. The command line, the package (`duetto.SAC`), messages
and tests find it in `ALGORITHMS`.
"""

from duetto.algorithms.base import Algorithm as Algorithm
from duetto.algorithms.bc import BC as BC
from duetto.algorithms.crossq import CrossQ as CrossQ
from duetto.algorithms.ddpg import DDPG as DDPG
from duetto.algorithms.discrete_sac import DiscreteSAC as DiscreteSAC
from duetto.algorithms.dqfd import DQfD as DQfD
from duetto.algorithms.dqn import DQN as DQN
from duetto.algorithms.flashsac import FlashSAC as FlashSAC
from duetto.algorithms.ppo import PPO as PPO
from duetto.algorithms.r2d2 import R2D2 as R2D2
from duetto.algorithms.r2d3 import R2D3 as R2D3
from duetto.algorithms.sac import SAC as SAC
from duetto.algorithms.td3 import TD3 as TD3
from duetto.algorithms.tqc import TQC as TQC

_KINDS = {kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, Algorithm)} - {Algorithm}
ALGORITHMS: dict[str, type[Algorithm]] = {kind.name(): kind for kind in sorted(_KINDS, key=lambda kind: kind.name())}
