"""The training loop: collect, store, learn; log, evaluate, checkpoint. Here the `VecEnv` is called `stepper`.

trainer, components       pre-training and the loop; when it logs, evaluates, updates; the parts that it uses
collector, policy         acting in training; acting in evaluations, and hidden states
normalizer                scaling of observations and rewards with running statistics (`functional.running_stats`)
evaluation, video         evaluations, which also save the best parameters; videos
checkpoints               contents of a checkpoint; the checks of a resume: changed options, other spaces
callbacks                 the interface of callbacks; `duetto.callbacks` has ready callbacks
metrics, diagnostics      log lines, TensorBoard, the error for NaN losses; warnings about short runs, bad policies
progress, progress_lines  the display of a run while it trains; rows and status lines for any display
device_trainer, device_loop  runs whose environments and updates are one compiled JAX program
signals, notices          Ctrl-C and SIGTERM; messages for the user
"""
