"""Tools around runs.

cli        the command line
plot       learning curves and tables
report     one page on several runs
sweep      many runs: algorithms, environments, seeds
tune       a search for hyper-parameters
hub        runs on the Hugging Face Hub
export     a policy that acts without Duetto
"""
