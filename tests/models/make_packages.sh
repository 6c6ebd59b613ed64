#!/usr/bin/env bash
# make_packages.sh PYTHON OUT DATA: runs make_packages.py; exit code 77 (skipped) if the python set is not installed.
set -euo pipefail
if [[ ! -x "$1" ]]; then
  echo "skipped: $1 does not exist; tools/setup.sh python installs it"
  exit 77
fi
# While other tests run, a spinning OpenMP team takes several times as long. The default allocator takes twice as long.
export OMP_WAIT_POLICY=passive
tcmalloc=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4
[[ -e "$tcmalloc" ]] && export LD_PRELOAD="$tcmalloc"
# Exporters download nothing, and write no caches into the source tree.
export PYTHONDONTWRITEBYTECODE=1 YOLO_OFFLINE=true YOLO_CONFIG_DIR="$2/settings"
mkdir -p "$YOLO_CONFIG_DIR"
exec "$1" "$(dirname "$0")/make_packages.py" "$2" "$3"
