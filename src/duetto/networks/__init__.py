"""Networks as data, and the forward pass in PyTorch, JAX and NumPy.

specs, spaces, sequence_input    networks, their inputs and outputs, as data
network, layers, heads           the forward pass, once for all frameworks: whole, by layers, and the last layers
torch, jax, numpy                building a network in a framework
*_layers, *_recurrent            a framework's layers; `jax_bfloat16`, its products in bfloat16
batch_norm, masks                batch (re)normalization; action masks
weight_projection                weights of unit norm
preprocessing                    observations and actions as network inputs
action_distributions             distributions from a policy's outputs
initializers                     names, shapes and initial values of all arrays
custom_network, jax_custom       custom networks
"""
