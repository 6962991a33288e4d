"""Export an agent as one graph from the environment's observations to its actions.

    observation --> scaling by the run's statistics --> network --> best action --> the environment's units
                                                ^ a recurrent agent's carry (hidden state) is an input and an output

`graph.py` defines the computation for all formats. `torch_onnx.py` and `jax_stablehlo.py` write it to a file; both can
write agents of both frameworks. `writing.py` keeps the file if it acts as the agent does.
"""
