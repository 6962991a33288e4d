"""The user's interface to runs: start one, resume it, read what it left, load its agent.

api              `duetto.train`
spec             `RunSpec`, everything that a new run is started from, and its checks
argument_checks  whole numbers, seeds and checkpoints as functions and commands take them
run              `Run`, a run's folder; `start`
parallel_seeds   several seeds side by side in this process
pool             processes that train jobs, for sweeps and studies
finetune         a start from another run's networks
trainer_setup    a run's trainer, for a new folder or an existing one
agent            `duetto.load`: a trained agent, and the observations that it is given
"""
