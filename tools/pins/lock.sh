#!/usr/bin/env bash
# Makes core.txt and python.txt from python.in. Run it by hand when a pin changes.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet uv
# ultralytics requires the desktop build of OpenCV, which needs libGL. It also works with the headless one.
echo "opencv-python; sys_platform == 'never'" > "$work/overrides.txt"
"$work/venv/bin/uv" pip compile python.in --override "$work/overrides.txt" --generate-hashes --python-version 3.11 \
  --python-platform x86_64-manylinux_2_28 --only-binary :all: --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
  --quiet --output-file python.txt
# libtorch_cpu.so links cudart and cupti, although it never calls a GPU, so the core set has them. NVTX is for its headers.
awk '/^[a-z0-9-]+==/ {keep = /^(torch|nvidia-cuda-runtime|nvidia-cuda-cupti|nvidia-nvtx)==/} keep' python.txt > core.txt
