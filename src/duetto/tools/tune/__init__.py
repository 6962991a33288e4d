"""Search hyperparameters by trials. A trial trains with one choice of values, once for each seed.

api       `duetto.tune`, and its results: the best trial as a preset, and a table of all trials
space     the options to search, and their ranges: from types, bounds and current values, or from a YAML file
sampler   choose the options of the next trial, and prune trials; the only file that imports Optuna
study     the study's settings, and the sweep (`tools.sweep`) that trains the runs of all trials
"""
