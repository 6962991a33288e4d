"""Start runs, resume them, read their results, and load their agents.

api              `duetto.train`
spec             `RunSpec`: everything that defines a new run, and its checks
argument_checks  checks of arguments: whole numbers, seeds, checkpoints
run              `Run`, a run in its folder; `start`, which trains a new run
parallel_seeds   several seeds side by side in this process
pool             processes that train jobs, for sweeps and studies
finetune         new runs that start with the networks of another run
trainer_setup    making the trainer of a new run, or of an existing run
agent            `duetto.load`: a trained agent, and checks of its observations
"""
