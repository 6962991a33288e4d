"""A run's folder on disk: config, checkpoints, logs. It survives kill -9, and no file in it runs code unasked.

config.py             config.yaml: algorithm, environment, options, later changes; safe_yaml.py reads it
checkpoint.py         the checkpoints of a run; manifest.py their files and checksums, tree_codec.py the format
logs.py               metrics.jsonl and evaluations.csv
run_folder.py         make the folder, and let one process at a time work on it
atomic_io.py          write files whole or not at all; safe_open.py open them without following links
user_code.py          files of the user; signing.py whether they may run
reproducibility.py    what decides a run's numbers, and the command that repeats it
dict_diff.py          the differences of two configurations
"""
