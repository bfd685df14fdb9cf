#!/bin/bash
# A Ray cluster inside a Slurm allocation, and a run on it: one node is the head, the others join it.
#
#     sbatch --nodes=8 --gpus-per-node=8 deploy/ray-cluster.sh npz:cifar100.npz --learner resnet9@fast --device cuda \
#         --gpus-per-worker 1 --trials 4000 --out runs/shared
#SBATCH --job-name=memfluence-ray
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=08:00:00
#SBATCH --signal=B:INT@180
set -euo pipefail

if [ "$#" -eq 0 ]; then
    echo "usage: sbatch deploy/ray-cluster.sh DATASET [OPTIONS of memfluence run] --out RUN" >&2
    exit 2
fi
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n') # others on the network have no business there
export RAY_AUTH_TOKEN
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address="$head:6379"
srun --nodes=1 --ntasks=1 --nodelist="$head" ray start --head --port=6379 --include-dashboard=false --block &
sleep 20 # until the head answers
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" \
        ray start --address="$address" --block &
    sleep 20
fi
exec memfluence run "$@" --engine ray --address "$address"
