#!/usr/bin/env bash
# Machines joined to a Ray cluster by hand, over SSH, for one run. NOT RUN YET: only its syntax was checked, and its
# options against `ray start --help` of Ray 2.60.
#
#     examples/cluster/by-hand.sh 10.0.0.1 10.0.0.2 10.0.0.3
#
# Begin on the first machine, under the address by which the others reach it. On each of them: the same Python, Ray,
# Duetto and environment, found by a shell that is not interactive; SSH from the first one without a password; no
# firewall between them (Ray chooses ports), and nobody else in that network, for Ray trusts it. The run's folder is on
# the first machine alone. At the end every Ray process of yours on these machines is stopped.

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

# An actor takes one CPU of the cluster; learning needs one, too, which the cluster is not told of.
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
