"""Networks as data, and the forward pass in PyTorch, JAX and NumPy.

specs, spaces                    networks, their inputs and outputs, as data
network, layers, heads           the forward pass, once for all frameworks: whole, by layers, and the last layers
torch, jax                       building a network in a framework; `custom_network`, a custom one
*_layers                         a framework's layers; `jax_bfloat16`, their products in bfloat16
batch_norm, masks                batch (re)normalization; action masks
preprocessing                    observations and actions as network inputs
initializers                     names, shapes and initial values of all arrays
"""
