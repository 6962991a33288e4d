"""What a network is (`specs`, `spaces`), and how each framework builds it (`torch`, `jax`)."""
