"""Actors and replay shards in processes of a Ray cluster. In the mode `sync`, killing them changes no result.

- `config`, `launch`: the options, and the parts of a run on a cluster
- `transport`: the calls that Duetto needs of a cluster; `ray`: these calls on Ray, in the only file that imports Ray
- `actor_pool`: processes that are replaced when they die, and the server in each
- `actor`, `shard_server`: the work in these processes: act in environments; store and sample experience
- `remote_engine`, `block_source`: how the trainer sees the actors: as environments, and as a source of experience
- `modes`: `sync` and `async`: when actors make blocks of vector steps, and in which order these are used

`tests/cluster/simulated.py` has a simulated cluster without processes or real time, on which every call can fail.
"""

from duetto.cluster.config import Cluster, check_cluster

__all__ = ["Cluster", "check_cluster"]
