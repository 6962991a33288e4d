"""Many runs at once: algorithms, environments and seeds, each an ordinary run.

settings    a call or a YAML file, as settings
plan        which runs there are, and what of them is there already
crews       who trains: processes of this machine, or a Ray cluster's tasks
sweep       the loop: hand out what remains, note what becomes of it
progress    how far a run is
showing     what a person sees
results     the curves, and the interquartile means with their intervals

A sweep keeps no books: what is to be done follows from the call and the runs' own folders, so the same call goes on
after whatever happened, and two of them at a time share the work. The runs' locks see to it that none is begun twice.
"""
