"""Pure formulas on arrays of PyTorch, JAX or NumPy, without state.

returns, advantages, targets               n-step returns; generalized advantages; bootstrapped targets
q_values, rescaling, imitation             action values; R2D2's value scale; losses for an expert's actions
policy_gradient, distributions             terms of PPO's loss; distributions over actions
categorical                                values as distributions over fixed returns
priorities, schedules, running_stats       prioritized replay; learning rates and ε; running mean and std
array_ops, pytree, rng                     operations on arrays; trees of arrays; random generators
state_schema                               the check of saved states
"""
