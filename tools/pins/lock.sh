#!/usr/bin/env bash
# Makes core.txt and python.txt from python.in, browser.txt from browser.in, and formats.txt from formats.in.
# Run it by hand when a pin changes:
#
#   tools/pins/lock.sh [python] [browser] [formats]      (no argument: all)
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet uv
# ultralytics requires the desktop build of OpenCV, which needs libGL. It also works with the headless one.
echo "opencv-python; sys_platform == 'never'" > "$work/overrides.txt"
(($# > 0)) || set -- python browser formats
for name in "$@"; do
  options=()
  if [[ "$name" == formats ]]; then options=(--no-deps); fi  # the python set has torch and numpy, and tests need nothing else
  "$work/venv/bin/uv" pip compile "$name.in" "${options[@]}" --override "$work/overrides.txt" --generate-hashes --python-version 3.11 \
    --python-platform x86_64-manylinux_2_28 --only-binary :all: --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
    --quiet --output-file "$name.txt"
done
# The core set has cudart and cupti, because libtorch_cpu.so links them, although it never calls a GPU.
# It has NVTX for the headers.
awk '/^[a-z0-9-]+==/ {keep = /^(torch|nvidia-cuda-runtime|nvidia-cuda-cupti|nvidia-nvtx)==/} keep' python.txt > core.txt
