#!/bin/bash
# A run as a Slurm job array: each task does its part of the groups, into one directory that all nodes share.
#
#     sbatch deploy/slurm-array.sh npz:cifar100.npz --learner resnet9@fast --trials 4000 --device cuda --out runs/shared
#
# Submit it again after failures or a time limit: what is stored is not done again, and long trials go on from their
# last checkpoint. Part of the array can be submitted again, too: sbatch --array=3,7 deploy/slurm-array.sh ...
#SBATCH --job-name=memfluence
#SBATCH --array=0-99
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=4
#SBATCH --time=02:00:00
#SBATCH --signal=INT@120
#SBATCH --requeue
#SBATCH --output=memfluence-%A-%a.log
set -euo pipefail

export MEMFLUENCE_SHARDS="${MEMFLUENCE_SHARDS:-100}" # parts of the whole: as many as the full --array has
if [ "$#" -eq 0 ]; then
    echo "usage: sbatch deploy/slurm-array.sh DATASET [OPTIONS of memfluence run] --out RUN" >&2
    exit 2
fi

# srun passes the signal on, which comes two minutes before the end: memfluence then keeps what is complete.
if command -v srun >/dev/null; then
    exec srun memfluence run "$@" --shard auto --quiet
fi
exec memfluence run "$@" --shard auto --quiet
