#!/usr/bin/env bash
# Configures and builds a preset: tools/build.sh PRESET [TARGET ...] (no target: all).
# MILLRACE_CUDA (AUTO, ON or OFF) has an effect on the preset release only: the others turn CUDA off.
set -euo pipefail
cd "$(dirname "$0")/.."

preset="${1:?usage: tools/build.sh PRESET [TARGET ...]}"
options=()
if [[ "$preset" == release ]]; then options=("-DMILLRACE_CUDA=${MILLRACE_CUDA:-AUTO}"); fi
mkdir -p "build/$preset"
log="build/$preset/configure.log"
echo "build: configuring $preset"
cmake --preset "$preset" "${options[@]}" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
sed -n '/Millrace/,/sanitizers/p' "$log"
targets=()
if (($# > 1)); then targets=(--target "${@:2}"); fi
cmake --build --preset "$preset" --parallel "${JOBS:-2}" "${targets[@]}"
