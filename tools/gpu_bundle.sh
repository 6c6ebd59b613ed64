#!/usr/bin/env bash
# make gpu-bundle: packs everything to measure Millrace on a GPU machine that has only a driver, Python and PyTorch.
#
#   tools/gpu_bundle.sh [OUT]      default: build/gpu-bundle
#
#   OUT          programs, libraries, built-in models and scripts; at most 48 MiB
#   OUT.inputs   MobileSAM and YOLOv8n with seeded 16-bit weights, and six drawn pictures
#   OUT.tar.xz   both of them, to copy to that machine; at most 40 MiB
#
# Compression shrinks programs and libraries to a third. Weights are rounded to bf16: both packages then take 21 MB of the
# archive, not 28. The low byte of each weight is nearly random, so odd and even bytes have statistics of their own (lp=1).
# OUT/run.sh takes LibTorch from the PyTorch of that machine, which must have the version of LibTorch here.
# MILLRACE_BUNDLE_BUILD=FOLDER packs the programs of that build, and makes neither inputs nor the archive. For tests.
set -euo pipefail
cd "$(dirname "$0")/.."

out="$(realpath -m "${1:-build/gpu-bundle}")"
architectures="${MILLRACE_CUDA_ARCHITECTURES:-75-real;80-real;86-real;89-real;90-real;90-virtual}"
fail() { echo "gpu-bundle: $*" >&2; exit 1; }
fits() { # a file or a folder, and the most MiB
  local bytes max_bytes=$(($2 << 20))
  bytes=$(du -sb "$1" | cut -f1)
  ((bytes <= max_bytes)) || fail "$1 has $bytes bytes, more than the maximum of $max_bytes"
  echo "gpu-bundle: $1, $((bytes >> 20)) MiB"
}

programs=(apps/millrace gpu/cuda_test bench/bench_look)
plugins=(libmillrace_torch.so libmillrace_torch_graph.so libmillrace_overlay.so libmillrace_nifti.so)
build="${MILLRACE_BUNDLE_BUILD:-build/gpu}"
if [[ -z "${MILLRACE_BUNDLE_BUILD:-}" ]]; then
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMILLRACE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$architectures" > "$build.log" 2>&1 \
    || { cat "$build.log" >&2; exit 1; }
  cmake --build "$build" --parallel "${JOBS:-2}" --target millrace millrace_nifti cuda_test bench_look
fi
python="$(tools/setup.sh where)/python/bin/python"

rm -rf "$out"
mkdir -p "$out/bin" "$out/lib/millrace" "$out/share/millrace/models" "$out/share/millrace/export"
for program in "${programs[@]}"; do
  install -m 755 "$build/$program" "$out/bin/"
done
for plugin in "${plugins[@]}"; do
  install -m 755 "$build/lib/millrace/$plugin" "$out/lib/millrace/"
done
strip "$out"/bin/* "$out"/lib/millrace/*
for program in "$out"/bin/* "$out"/lib/millrace/*; do echo "file(RPATH_REMOVE FILE \"$program\")"; done > "$out/rpath.cmake"
# Copies the libraries that the programs need, except LibTorch, which PyTorch has, and those that every machine has.
# The plug-in for rare formats is not in the bundle: OpenCV's codecs need 150 MB of libraries.
ldd "$out"/bin/* "$out"/lib/millrace/* | sed -n 's/.* => \(\/[^ ]*\).*/\1/p' | sort -u | while read -r library; do
  case "$library" in
    */torch/lib/* | */nvidia/*) ;;
    */libc.so* | */libm.so* | */ld-linux* | */libpthread* | */libdl.so* | */librt.so* | */libstdc++* | */libgcc_s*) ;;
    *) install -m 644 "$library" "$out/lib/" ;;
  esac
done
cmake -P "$out/rpath.cmake"  # not before ldd, which finds LibTorch by the RPATH
rm "$out/rpath.cmake"
"$python" -c 'import torch; print(torch.__version__.split("+")[0])' > "$out/torch"
cp -r models/builtin/*.pkg "$out/share/millrace/models/"
install -m 644 models/export/*.py "$out/share/millrace/export/"  # for `millrace compile`
install -m 755 bench/gpu/run.sh "$out/run.sh"
install -m 644 bench/gpu/*.py "$out/"
{ git rev-parse HEAD; git diff --quiet HEAD || echo "with changes"; } > "$out/commit"

fits "$out" 48
[[ -z "${MILLRACE_BUNDLE_BUILD:-}" ]] || exit 0

inputs="$out.inputs"
made_by=(models/export/*.py models/demo/scenes.py tools/gpu_bundle.sh)
if [[ "$(cat "$inputs/made_by" 2> /dev/null)" != "$(cat "${made_by[@]}" | sha256sum)" ]]; then
  rm -rf "$inputs"
  mkdir -p "$inputs/pictures"
  seeded=$(mktemp -d)
  trap 'rm -rf "$seeded"' EXIT
  "$python" models/export/yolov8_seeded.py --seed 0 "$seeded/yolov8n.pkg" > "$inputs/log"
  "$python" models/export/mobile_sam_seeded.py --seed 0 "$seeded/mobile_sam.pkg" >> "$inputs/log"
  for package in yolov8n mobile_sam; do "$python" models/export/halve.py --round "$seeded/$package.pkg" "$inputs/$package.pkg" >> "$inputs/log"; done
  "$python" models/demo/scenes.py "$seeded/pictures" --scenes 2 >> "$inputs/log"
  for view in front left right; do
    for picture in "$seeded/pictures/$view"/*.jpg; do install -m 644 "$picture" "$inputs/pictures/$view-${picture##*/}"; done
  done
  cat "${made_by[@]}" | sha256sum > "$inputs/made_by"
fi

tar -C "$(dirname "$out")" -c "$(basename "$out")" "$(basename "$inputs")" | xz -T0 --x86 --lzma2=preset=9e,lp=1,pb=1 > "$out.tar.xz"
fits "$out.tar.xz" 40
echo "gpu-bundle: on the other machine: $(basename "$out")/run.sh suite look correct models e2e peers decode --inputs $(basename "$inputs")"
