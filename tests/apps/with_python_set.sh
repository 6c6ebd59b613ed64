#!/usr/bin/env bash
# with_python_set.sh DEPS TEST.py: runs the test with the interpreter of the python set; exit code 77 (skipped) if it is not installed.
set -euo pipefail
python="$1/python/bin/python"
if [[ ! -x "$python" ]]; then
  echo "skipped: $python does not exist; tools/setup.sh python installs it"
  exit 77
fi
exec "$python" -B "${@:2}"
