"""A run's environments in processes of a Ray cluster: the numbers stay the same, whichever process dies.

Only `ray.py` imports Ray, and only if a cluster is asked for. Everything else here speaks to processes by a *transport*
of five calls (`transport.py`). `tests/cluster/simulated.py` is another transport: without processes or time, and with
all that can go wrong.
"""

from duetto.cluster.config import Cluster

__all__ = ["Cluster"]
