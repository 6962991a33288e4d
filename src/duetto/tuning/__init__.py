"""Searching hyper-parameters: many short trainings, whose evaluations decide what is tried next.

space       which options are searched, and how: from their types, bounds and present values, or from a YAML file
optuna      what is tried next, and which trials are pruned; the only file that imports Optuna
study       the loop: ask, train, judge, tell; and its folder, from which the same command goes on
results     the best trial as a preset, judged by fresh episodes
"""
