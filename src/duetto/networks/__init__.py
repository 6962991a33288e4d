"""Networks as data, and the forward pass in PyTorch, JAX and NumPy.

specs, spaces                    networks, their inputs and outputs, as data
network                          the forward pass of a whole network, once for all frameworks
layers                           stacks of linear layers; how critics get the action; inputs of recurrent networks
heads                            the layers after the torso (the encoder), and the outputs that losses get
torch, jax, custom_network       building a network in a framework; a user's own network
*_layers, jax_bfloat16           each framework's layers; matrix products in bfloat16 in JAX
batch_norm, masks                batch (re)normalization; action masks
preprocessing                    observations and actions as network inputs
initializers                     names, shapes and initial values of a network's arrays
"""
