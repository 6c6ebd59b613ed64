#!/usr/bin/env bash
# Trains the built-in models: tools/train_demo.sh [SEED] (default 0). The front detector first; then, side by side on a core each, the
# other two, which begin with its weights, and the segmenter, which begins with its trunk. What is done is kept, so the same command goes on
# where it was stopped. Copy the packages to models/builtin/ when models/demo/quality.py passes on them.
set -euo pipefail
cd "$(dirname "$0")/.."

seed="${1:-0}" out="build/demo-models/${1:-0}"
python="$(tools/setup.sh where)/python/bin/python"
mkdir -p "$out"
exec 9> "$out/lock"
flock --nonblock 9 || { echo "train_demo: another training writes to $out" >&2; exit 1; }

# LibTorch on the default allocator spends much of a training step in page faults: 0.90 s a step of the detector against 0.56.
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
trap 'kill "$segmenter" 2> /dev/null || true' EXIT  # a job in the background does not hear Ctrl-C
(train 1 left right)
wait "$segmenter"
echo "packages are in $out"
