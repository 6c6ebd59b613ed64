#!/usr/bin/env bash
# Runs every benchmark of the release build, after a line about the machine and one about the commit.
# Most print a spread or several measurements. bench_masks prints medians only; bench_memory measures once.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t programs < <(find build/release/bench -maxdepth 1 -type f -executable 2> /dev/null | sort)
((${#programs[@]} > 0)) || { echo "bench: no benchmark in build/release/bench; run 'make bench', which builds them" >&2; exit 1; }
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(awk '/MemTotal/ {printf "%.0f GB", $2 / 1e6}' /proc/meminfo)"
echo "commit:  $(git describe --always --dirty 2> /dev/null || echo unknown)"
# bench_overhead needs these packages. They have seeded weights and are made only once.
packages=$(sed -n "s/^MILLRACE_TEST_PACKAGES:PATH=//p" build/release/CMakeCache.txt)
ctest --preset release --tests-regex '^make_test_packages$' --output-on-failure > /dev/null || { echo "bench: making the test packages failed; 'ctest --preset release -R make_test_packages' says why" >&2; exit 1; }
for program in "${programs[@]}"; do
  echo "== $(basename "$program")"
  case "$(basename "$program")" in
    bench_overhead) "$program" "$packages/yolov8n.pkg" "$packages/mobile_sam.pkg" --pictures 6 --repeats 4 ;;
    bench_reports) "$program" --out build/insight/reports ;;
    *) "$program" ;;
  esac
done
echo "== host.py"
"$(tools/setup.sh where)/python/bin/python" bench/host.py
