"""Many runs at once: algorithms, environments and seeds, each an ordinary run.

settings    a call or a YAML file, as settings
plan        the runs of a sweep, and how much of them is done already
crews       what trains: processes of this machine, or a Ray cluster's tasks
sweep       the loop: hand out what remains, note how it ends
progress    how far a run is
showing     the display
results     the curves, and the interquartile means with their intervals

A sweep keeps no records of its own: what remains follows from the call and the runs' folders, so the same call goes on
after whatever happened, and two of them at a time share the work. The runs' locks keep any from being begun twice.
"""
