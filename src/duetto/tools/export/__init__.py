"""Export an agent as one graph from the environment's observations to its actions.

    observation --> scaling by the run's statistics --> network --> best action --> the environment's units
                                                ^ a recurrent agent's carry is an input and an output

`graph.py` defines the computation once for all formats; `torch_onnx.py` and `jax_stablehlo.py` write it, whichever
framework the agent learned on; `writing.py` joins them, and compares the written file with the agent before it is kept.
"""
