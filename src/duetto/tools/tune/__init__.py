"""Search hyper-parameters: many short trainings, whose evaluations decide what is tried next.

api       `duetto.tune`
plan      what is tuned, and how; the study's folder refuses any other plan
space     which options are searched, and how: from their types, bounds and present values, or from a YAML file
sampler   the options of the next trial, and which trials are pruned; the only file that imports Optuna
study     the loop: ask, train, report, prune, tell; the same call continues it from its folder
results   the best trial as a preset, a table, plots, and an evaluation in new episodes
display   the row and the lines on a terminal
"""
