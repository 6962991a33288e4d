"""The loop that joins environments, memory and learner: collect, remember, learn; evaluate, log, checkpoint."""
