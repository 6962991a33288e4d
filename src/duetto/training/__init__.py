"""The loop that joins environments, memory and learner: collect, remember, learn; evaluate, log, checkpoint.

trainer, components       the loop; the parts that it joins, and where environments live
collector, policy         steps from the environments; acting, and hidden states while acting
normalizer                running statistics of observations and rewards
evaluation, video         whole episodes of the policy, the best parameters; videos
checkpoints               what a checkpoint holds; a resume's comparison with it: config, spaces, versions
callbacks                 hooks that the trainer calls; ready ones are in `duetto.callbacks`
metrics, diagnostics      numbers of a log line, also for TensorBoard; warnings: too short, NaN, collapsed
progress, progress_lines  what a run shows while it trains
device_trainer, device_loop  a run in environments of arrays, as one compiled program
signals, notices          Ctrl-C; where warnings and hints are shown
"""
