#!/usr/bin/env bash
#SBATCH --job-name=duetto
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem-per-cpu=1G
#SBATCH --time=24:00:00
#SBATCH --requeue

# A Ray cluster on the nodes of a SLURM job, for one run. NOT RUN YET: only its syntax and options were checked, with
# Ray 2.60. `ray symmetric-run` starts and ends Ray on all nodes and runs a command on the first.
#
#     sbatch examples/cluster/slurm.sh
#
# If it is submitted again or requeued, it resumes the run from its last checkpoint. Submit it from a folder that all
# nodes share, with an activated virtual environment that contains `ray` and `duetto`:
#
# source .venv/bin/activate

set -euo pipefail

run=runs/arm
actors=47 # one CPU each; one CPU remains for learning

# An address of the first node that the others reach. If this prints 127.0.0.1 or several addresses, write it here.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(srun --nodes=1 --ntasks=1 --nodelist="$first" hostname --ip-address)
port=$((20000 + SLURM_JOB_ID % 10000)) # other jobs may use the same nodes

if [ -d "$run" ]; then
    command=(duetto resume "$run")
else
    command=(duetto train td3 my_simulator:Arm-v0 --num-envs 94 --runs-dir runs --name arm)
fi

srun --kill-on-bad-exit=1 ray symmetric-run --address "$address:$port" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false \
    -- "${command[@]}" --cluster "$address:$port" --actors "$actors"
