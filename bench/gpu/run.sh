#!/usr/bin/env bash
# Runs a program of this bundle, or `suite.py PART`, with the LibTorch of this machine's Python: run.sh millrace run ..., run.sh suite correct
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
python="${PYTHON:-python3}"
torch="$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')/lib"
export LD_LIBRARY_PATH="$here/lib:$torch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" MILLRACE_BUNDLE="$here"
program="$1"
shift
if [[ "$program" == suite ]]; then exec "$python" "$here/suite.py" "$@"; fi
exec "$here/bin/$program" "$@"
