#!/usr/bin/env bash
#SBATCH --job-name=duetto
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem-per-cpu=1G
#SBATCH --time=24:00:00
#SBATCH --requeue

# A Ray cluster on the nodes of a SLURM job, for one run. NOT RUN YET: only its syntax was checked, and its options
# against `ray symmetric-run --help` of Ray 2.60, which begins and ends Ray on all nodes and runs a command on the first.
#
#     sbatch examples/cluster/slurm.sh
#
# Submitted again, or requeued, it goes on with the run from its last checkpoint. What it is submitted from must be a
# folder that all nodes share, with an environment in which `ray` and `duetto` are found: activate it here.
#
# source .venv/bin/activate

set -euo pipefail

run=runs/arm
actors=47 # one CPU each; one is left to learning

# An address of the first node, by which the others reach it. Where this gives 127.0.0.1 or several, write it here.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(srun --nodes=1 --ntasks=1 --nodelist="$first" hostname --ip-address)
port=$((20000 + SLURM_JOB_ID % 10000)) # jobs of others may be on the same nodes

if [ -d "$run" ]; then
    command=(duetto resume "$run")
else
    command=(duetto train td3 my_simulator:Arm-v0 --num-envs 94 --runs-dir runs --name arm)
fi

srun --kill-on-bad-exit=1 ray symmetric-run --address "$address:$port" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false \
    -- "${command[@]}" --cluster "$address:$port" --actors "$actors"
