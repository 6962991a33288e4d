"""A run's folder: config, checkpoints, logs. The files survive kill -9; code that they name runs only if trusted.

config.py             config.yaml: algorithm, environment, options, later changes
safe_yaml.py          read and write YAML safely
checkpoint.py         the checkpoints of a run
manifest.py           the files of a checkpoint, with checksums
tree_codec.py         the format of these files: JSON and safetensors
logs.py               metrics.jsonl and evaluations.csv
run_folder.py         make the folder, and lock it for one process
atomic_io.py          write files completely or not at all
safe_open.py          open files without following links
user_code.py          load classes from the user's Python files
signing.py            decide whether these files may run
reproducibility.py    compare configurations and runs; the command that repeats a run
"""
