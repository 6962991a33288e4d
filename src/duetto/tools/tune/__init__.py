"""Search hyperparameters: short trainings, whose evaluations select the next options.

api       `duetto.tune`; its results: the best trial as a preset, and a table of all
space     which options are searched, and how: from their types, bounds and present values, or from a YAML file
sampler   the options of the next trial, and which trials are pruned; the only file that imports Optuna
study     its plan, and a sweep (`tools.sweep`) whose runs are the trials; the same call continues it from its folder
"""
