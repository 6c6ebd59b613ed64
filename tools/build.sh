#!/usr/bin/env bash
# Configures and builds presets: tools/build.sh release [asan ...]. MILLRACE_CUDA (AUTO, ON, OFF) is passed on to those that can use it.
set -euo pipefail
cd "$(dirname "$0")/.."

for preset in "$@"; do
  options=()
  if [[ -n "${MILLRACE_CUDA:-}" && "$preset" =~ ^(release|dev)$ ]]; then options=("-DMILLRACE_CUDA=$MILLRACE_CUDA"); fi
  mkdir -p "build/$preset"
  log="build/$preset/configure.log"
  echo "build: configuring $preset"
  cmake --preset "$preset" "${options[@]}" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
  sed -n '/Millrace/,/sanitizers/p' "$log"
  cmake --build --preset "$preset" --parallel "${JOBS:-2}"
done
