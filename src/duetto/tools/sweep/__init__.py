"""Train many runs: every algorithm in every environment with every seed.

api           `duetto.sweep`
plan          the arguments of a call as experiments, their runs, and how far each is
sweep         the loop: start runs while there is room, and record how they end
results       learning curves, and interquartile means with their intervals
display       the rows and lines on a terminal

A sweep keeps no record: the remaining runs follow from the call and the runs' folders. So the same call continues after
any interruption, and several sweeps of one folder share the work: a lock on each run keeps it from being started twice.
A study (`tools.tune`) is a sweep whose runs come from a sampler.
"""
