#!/usr/bin/env bash
# Style checks: tools/lint.sh checks, tools/lint.sh --format formats every C++ file in place.
#
# - clang-format on all C++ and CUDA files
# - tools/check_includes.py: who may include whom, and other rules of structure
# - tools/check_prose.py: long sentences and banned words in pages, comments and messages
# - the syntax of shell and Python files
# - clang-tidy on files that do not include LibTorch
set -uo pipefail
cd "$(dirname "$0")/.."

mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- '*.cpp' '*.hpp' '*.cu' '*.cuh' | while read -r file; do [[ -e "$file" ]] && echo "$file"; done)
if [[ "${1:-}" == --format ]]; then
  clang-format-14 -i "${sources[@]}"
  exit
fi

failed=0
step() {
  local name="$1"
  shift
  if "$@"; then echo "lint: $name: fine"; else echo "lint: $name: FAILED" >&2; failed=1; fi
}
syntax() {
  local file bad=0
  while read -r file; do bash -n "$file" || bad=1; done < <(
    echo .ci/run
    git ls-files --cached --others --exclude-standard -- '*.sh'
  )
  while read -r file; do
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$file" || bad=1
  done < <(git ls-files --cached --others --exclude-standard -- '*.py')
  return $bad
}

step "clang-format (make format does it)" clang-format-14 --dry-run -Werror "${sources[@]}"
step "who may include whom" tools/check_includes.py
step "sentences and words" tools/check_prose.py
step "scripts parse" syntax
step "clang-tidy" tools/tidy.py
exit $failed
