"""Tools that start runs, or that read, share and export them.

cli        the command line
plot       learning curves and tables
report     an HTML page about runs
sweep      many runs: algorithms x environments x seeds
tune       hyperparameter search
hub        push and pull runs on the Hugging Face Hub
export     files with policies that act without Duetto
"""
