#!/usr/bin/env bash
# with_python_set.sh DEPS TEST.py: runs the test with the python set's interpreter; exit code 77 (skipped) where it is not installed.
set -euo pipefail
python="$1/python/bin/python"
if [[ ! -x "$python" ]]; then
  echo "skipped: $python is not there; tools/setup.sh python installs it"
  exit 77
fi
exec "$python" -B "${@:2}"
