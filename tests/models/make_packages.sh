#!/usr/bin/env bash
# make_packages.sh PYTHON OUT DATA: make_packages.py where the python set is installed, else exit code 77 (skipped).
set -euo pipefail
if [[ ! -x "$1" ]]; then
  echo "skipped: $1 is not there; tools/setup.sh python installs it"
  exit 77
fi
# Beside other tests a spinning OpenMP team takes several times as long, and the default allocator twice as long.
export OMP_WAIT_POLICY=passive
tcmalloc=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4
[[ -e "$tcmalloc" ]] && export LD_PRELOAD="$tcmalloc"
# Exporters fetch nothing, and leave no caches in the source.
export PYTHONDONTWRITEBYTECODE=1 YOLO_OFFLINE=true YOLO_CONFIG_DIR="$2/settings"
mkdir -p "$YOLO_CONFIG_DIR"
exec "$1" "$(dirname "$0")/make_packages.py" "$2" "$3"
