"""A run's folder on disk: config, checkpoints, logs. It survives kill -9, and no file in it runs code unasked.

config.py             config.yaml: algorithm, environment, options; safe_yaml.py reads it
resume_history.py     what changed since the start; dict_diff.py the differences of two configurations
checkpoint.py         the checkpoints of a run; manifest.py their files and checksums, tree_codec.py the format
logs.py               metrics.jsonl and evaluations.csv
run_folder.py         make the folder; lock.py one process at a time
atomic_io.py          write files whole or not at all; safe_open.py open them without following links
user_code.py          files of the user; signing.py whether they may run
reproducibility.py    which options decide the numbers; repeat_command.py the command that repeats a run
"""
