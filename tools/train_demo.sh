#!/usr/bin/env bash
# Trains the built-in models: tools/train_demo.sh [SEED] (default 0).
#
# It trains the front detector first, on two cores. Then two processes train at the same time, on one core each:
# - the left detector, then the right one; both start with the weights of the front detector
# - the segmenter, which starts with the trunk of the front detector
#
# The same command resumes a stopped training.
# When models/demo/quality.py passes on the packages, copy them to models/builtin/.
set -euo pipefail
cd "$(dirname "$0")/.."

seed="${1:-0}" out="build/demo-models/${1:-0}"
python="$(tools/setup.sh where)/python/bin/python"
mkdir -p "$out"
exec 9> "$out/lock"
flock --nonblock 9 || { echo "train_demo: another training writes to $out" >&2; exit 1; }

# With the default allocator, LibTorch spends much of a training step in page faults.
# A step of the detector takes 0.90 s with it, and 0.56 s with tcmalloc.
tcmalloc=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4
[[ -e "$tcmalloc" ]] || tcmalloc=""
train() {
  LD_PRELOAD="$tcmalloc" TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD=100000000000 \
    exec "$python" models/demo/train.py "$out" --seed "$seed" --threads "$1" --only "${@:2}"
}
"$python" models/demo/train.py "$out" --seed "$seed" --only  # draws the scenes, trains nothing
(train 2 front)
train 1 segmenter &
segmenter=$!
trap 'kill "$segmenter" 2> /dev/null || true' EXIT  # Ctrl-C does not reach a job in the background
(train 1 left right)
wait "$segmenter"
echo "packages are in $out"
