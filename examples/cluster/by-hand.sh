#!/usr/bin/env bash
# Machines joined to a Ray cluster over SSH, for one run. NOT RUN YET: only its syntax and options were checked, with
# Ray 2.60.
#
#     examples/cluster/by-hand.sh 10.0.0.1 10.0.0.2 10.0.0.3
#
# Start it on the first machine; the first argument is the address by which the others reach this machine. All machines
# need the same Python, Ray, Duetto and environment, found by a shell that is not interactive; SSH from the first one
# without a password; no firewall between them (Ray chooses ports); and nobody else in that network, because Ray trusts
# it. The run's folder is on the first machine only. At the end the script stops all your Ray processes on them.

set -euo pipefail

if [ $# -lt 1 ]; then
    echo "usage: $0 HEAD [WORKER ...]" >&2
    exit 2
fi
head=$1
shift
workers=("$@")
port=6379
run=runs/arm

stop() {
    for worker in "${workers[@]}"; do
        ssh "$worker" ray stop || true
    done
    ray stop
}
trap stop EXIT

# Each actor takes one CPU of the cluster. Learning needs one more, which Ray does not count.
ray start --head --node-ip-address="$head" --port="$port" --num-cpus="$(($(nproc) - 1))" --include-dashboard=false
for worker in "${workers[@]}"; do
    ssh "$worker" ray start --address="$head:$port"
done

if [ -d "$run" ]; then
    duetto resume "$run" --cluster "$head:$port" --actors 32
else
    duetto train td3 my_simulator:Arm-v0 --num-envs 32 --runs-dir runs --name arm \
        --cluster "$head:$port" --actors 32
fi
