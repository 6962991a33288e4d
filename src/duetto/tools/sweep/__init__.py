"""Train many runs: every algorithm in every environment with every seed.

api           `duetto.sweep`: the experiments (algorithms x environments), and its results: curves, interquartile means
sweep         the runs (experiments x seeds), their progress, and the loop that starts them and records how they end
display       the progress on a terminal: live rows, and lines for events

A sweep keeps no record of its own: the call and the runs' folders determine the remaining runs. So the same call
continues after any interruption. Several sweeps may share a folder: a lock on each run prevents starting it twice. A
study (`tools.tune`) is a sweep whose runs come from a sampler.
"""
