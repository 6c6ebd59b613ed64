#!/usr/bin/env bash
# Runs a program of this bundle, or `suite.py PART`, with the LibTorch of this machine's Python.
# Examples: run.sh millrace run ..., run.sh suite correct
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
python="${PYTHON:-python3}"
found="$("$python" -c 'import os, torch; print(torch.__version__.split("+")[0], os.path.dirname(torch.__file__))')" \
  || { echo "run.sh: $python has no PyTorch; name another Python with PYTHON=..." >&2; exit 1; }
wanted="$(cat "$here/torch")"
[[ "${found%% *}" == "$wanted" ]] || { echo "run.sh: $python has PyTorch ${found%% *}, but this bundle is built for $wanted; name another Python with PYTHON=..." >&2; exit 1; }
# Only for the bundle's programs: Python has its own libraries of the same names.
export MILLRACE_BUNDLE="$here" MILLRACE_LIBRARY_PATH="$here/lib:${found#* }/lib"
program="${1:?run.sh: name a program of bin/, or suite}"
shift
if [[ "$program" == suite ]]; then exec "$python" "$here/suite.py" "$@"; fi
export LD_LIBRARY_PATH="$MILLRACE_LIBRARY_PATH${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/bin/$program" "$@"
