"""Networks as data (`specs`, `spaces`), and how each framework builds and runs them (`torch`, `jax`, `numpy`)."""
