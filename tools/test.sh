#!/usr/bin/env bash
# Runs parts of the checks: tools/test.sh PART ... The last line of output is "N passed, N failed, N skipped".
#
#   lint                           style, includes, clang-tidy
#   unit                           the doctest programs of preset dev
#   release, cpu, dev, asan, tsan  build that preset and run its tests
#
# Every part runs, even after one before it failed. MILLRACE_TEST_DATA names the folder of photographs and models.
# Without it, tests that need it skip.
set -uo pipefail
cd "$(dirname "$0")/.."

(($# > 0)) || { echo "usage: tools/test.sh PART ...; the parts are lint, unit, release, cpu, dev, asan and tsan" >&2; exit 2; }
sets=(core)
for part in "$@"; do
  case "$part" in
    lint) sets+=(check) ;;
    unit) ;;
    release | cpu | dev) sets+=(python check weights browser formats) ;;
    asan) sets+=(python check weights) ;;
    tsan) sets+=(tsan) ;;
    *) echo "test: unknown part '$part'; the parts are lint, unit, release, cpu, dev, asan and tsan" >&2; exit 2 ;;
  esac
done

if [[ -n "${MILLRACE_TEST_DATA:-}" ]]; then
  MILLRACE_TEST_DATA="$(realpath -e "$MILLRACE_TEST_DATA")" || { echo "test: MILLRACE_TEST_DATA is not an existing folder" >&2; exit 2; }
  export MILLRACE_TEST_DATA
fi

results=build/results
rm -rf "$results"
mkdir -p "$results"
timing=()

# Runs a command, and notes its time under this name.
timed() {
  local name="$1" began=$SECONDS status=0
  shift
  echo "== $name"
  "$@" || status=$?
  timing+=("$(printf '%-16s %4d s' "$name" $((SECONDS - began)))")
  return $status
}
broken() { echo "$1" > "$results/$1.broken"; }

timed setup tools/setup.sh "${sets[@]}" || {
  echo "test: the set-up failed, see its message above" >&2
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}
for part in "$@"; do
  if [[ "$part" == lint ]]; then
    if timed lint tools/lint.sh; then touch "$results/lint.fine"; else broken lint; fi
  elif [[ "$part" == unit ]]; then
    if timed "unit build" tools/build.sh dev unit_tests; then
      timed "unit tests" ctest --preset dev --label-regex '^unit$' --parallel "${JOBS:-2}" --output-junit "$PWD/$results/unit.xml" || true
      [[ -s "$results/unit.xml" ]] || broken "unit tests"
    else
      broken "unit build"
    fi
  elif timed "$part build" tools/build.sh "$part"; then
    timed "$part tests" ctest --preset "$part" --parallel "${JOBS:-2}" --output-junit "$PWD/$results/$part.xml" || true
    [[ -s "$results/$part.xml" ]] || broken "$part tests"
  else
    broken "$part build"
  fi
done

echo "== summary"
printf '  %s\n' "${timing[@]}" "$(printf '%-16s %4d s' total $SECONDS)"
/usr/bin/env python3 tools/test_summary.py "$results"
