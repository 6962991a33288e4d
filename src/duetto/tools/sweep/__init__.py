"""Train many runs: every algorithm in every environment with every seed.

api           `duetto.sweep`; its results: learning curves, and interquartile means with their intervals
sweep         the runs, how far each is, and the loop: start runs while there is room, and record how they end
display       the rows and lines on a terminal

A sweep keeps no record: the remaining runs follow from the call and the runs' folders. So the same call continues after
any interruption, and several sweeps of one folder share the work: a lock on each run keeps it from being started twice.
A study (`tools.tune`) is a sweep whose runs come from a sampler.
"""
