"""A run's environments in processes of a Ray cluster: the same numbers, whoever dies.

Ray is imported in `ray.py` alone, and only where a cluster is asked for. Everything else here speaks to processes by a
*transport* of five calls (`transport.py`), of which `tests/cluster/simulated.py` is another one: without processes or
time, and with all that can go wrong.
"""

from duetto.cluster.options import Cluster

__all__ = ["Cluster"]
