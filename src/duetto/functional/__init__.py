"""Pure formulas on arrays of PyTorch, JAX or NumPy, without state.

returns                                    n-step returns; bootstrapped targets; generalized advantages
q_values, categorical                      action values; values as distributions over fixed returns
policy_gradient, distributions             terms of PPO's loss; distributions over actions
priorities, schedules, running_stats       prioritized replay; schedules of learning rates and ε; running mean and std
array_ops, pytree, rng                     operations on arrays; trees of arrays; random generators
state_schema                               the check of saved states
"""
