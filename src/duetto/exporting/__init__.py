"""Export of an agent: one graph from observations, as the environment gives them, to actions, as it takes them.

    observation --> scaling by the run's statistics --> network --> its best guess --> the environment's units
                                 ^ what a recurrent agent carries from step to step goes in and comes out

`graph.py` defines what the graph computes, once for all formats; `torch.py` and `jax.py` write it with their
framework, whichever one the agent learned on; `checking.py` runs the written file beside the agent before it is kept.
"""

from duetto.exporting.writing import FORMATS, export

__all__ = ["FORMATS", "export"]
