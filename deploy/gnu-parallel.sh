#!/bin/bash
# A run by GNU parallel, here or on machines that share a directory (a list of them in a file: --sshloginfile).
#
#     deploy/gnu-parallel.sh 8 digits --trials 2000 --out runs/shared
#     PARALLEL_OPTIONS="--sshloginfile machines --workdir $PWD" deploy/gnu-parallel.sh 64 digits --out runs/shared
#
# The first argument is the number of parts. Start it again after failures: what is stored is not done again.
set -euo pipefail

if [ "$#" -lt 2 ]; then
    echo "usage: deploy/gnu-parallel.sh PARTS DATASET [OPTIONS of memfluence run] --out RUN" >&2
    exit 2
fi
export MEMFLUENCE_SHARDS="$1"
shift

# parallel sets PARALLEL_SEQ to 1, 2, ... and --shard auto reads it; {} only makes it start that many.
# shellcheck disable=SC2086  # options are meant to be split
seq "$MEMFLUENCE_SHARDS" |
    parallel ${PARALLEL_OPTIONS:-} --env MEMFLUENCE_SHARDS --halt soon,fail=20% \
        "$(printf '%q ' memfluence run "$@" --shard auto --quiet) # {}"
