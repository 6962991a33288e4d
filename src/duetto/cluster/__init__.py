"""Actors and replay shards in processes of a Ray cluster; killing any of them changes no `sync` number.

- `config`, `launch`: the options, and how the parts of a run on a cluster are made
- `transport`, `ray`: the calls that Duetto needs of a cluster, and Ray, which only that file imports
- `actor_pool`: processes that are replaced when they die, and the object in each
- `actor`, `shard_server`: the processes' work: act, store
- `remote_engine`, `block_source`: the trainer's view of the actors: environments, and a source of experience
- `modes`: `sync` and `async`: in which order actors get orders and their blocks are used

`tests/cluster/simulated.py` is another transport, without processes or time, in which everything fails that can.
"""

from duetto.cluster.config import Cluster

__all__ = ["Cluster"]
