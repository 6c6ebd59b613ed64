#!/usr/bin/env bash
# make model: makes model packages from published weights, and prints the command that runs them.
#
#   WEIGHTS=FILE [SEGMENTER=FILE] [OUT=FOLDER] [PHOTOGRAPH=FILE] [IMGSZ=N] [NAMES=FILE] [PRESET=V1|V2] [TRUST=1] \
#     tools/model.sh [check]
#
# WEIGHTS is a detector, a segmenter or an embedder (a classifier).
# A package has the name of its file (yolov8n.pt: yolov8n.pkg). It is written to OUT, or next to the file.
# `check` only checks that the files exist.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
fail() { echo "model: $*" >&2; exit 1; }

files=()
[[ -n "${WEIGHTS:-}" ]] && files+=("$WEIGHTS")
[[ -n "${SEGMENTER:-}" ]] && files+=("$SEGMENTER")
usage="make model WEIGHTS=yolov8n.pt [SEGMENTER=mobile_sam.pt] [OUT=FOLDER]"
((${#files[@]} > 0)) || fail "no weights named; $usage (models/export/README.md says which files)"
if [[ "${1:-}" == check ]]; then  # the Makefile calls this before it installs anything
  for file in "${files[@]}"; do
    [[ -e "$file" ]] || fail "$file: no such file; fetch the weights first (models/export/README.md says where they come from)"
  done
  exit
fi
python="${MILLRACE_PYTHON:-$("$here/tools/setup.sh" where)/python/bin/python}"
[[ -x "$python" ]] || fail "$python does not exist; tools/setup.sh python installs it"

options=()
[[ -n "${PHOTOGRAPH:-}" ]] && options+=(--photograph "$PHOTOGRAPH")
[[ -n "${TRUST:-}" ]] && options+=(--trust)
# While other programs run, a spinning OpenMP team takes several times as long.
# The default allocator takes twice as long.
export OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1
tcmalloc=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4

preload="${LD_PRELOAD:-}"
[[ -e "$tcmalloc" ]] && preload="$tcmalloc"
export_model() { LD_PRELOAD="$preload" "$python" "$here/models/export/export.py" "${options[@]}" "$@"; }

if ((${#files[@]} == 2)); then  # two models of one task are refused before anything is written
  first="$(export_model --task "${files[0]}")" && second="$(export_model --task "${files[1]}")" || exit 1
  [[ "$first $second" != *embedder* ]] || fail "an embedder has its own recipe, without detector and segmenter: name it alone, as WEIGHTS; nothing was written"
  [[ "$first" != "$second" ]] || fail "${files[1]}: is a $second, as ${files[0]} is; name one detector and one segmenter; nothing was written"
fi

arguments=()
tasks=""
for file in "${files[@]}"; do
  name="$(basename "$file")"
  package="$(realpath -ms "${OUT:-$(dirname "$file")}/${name%.*}.pkg")"
  own=()
  if [[ "$file" == "${WEIGHTS:-}" ]]; then
    [[ -n "${IMGSZ:-}" ]] && read -ra sides <<< "$IMGSZ" && own+=(--imgsz "${sides[@]}")
    [[ -n "${NAMES:-}" ]] && own+=(--names "$NAMES")
    [[ -n "${PRESET:-}" ]] && own+=(--preset "$PRESET")
  fi
  [[ " ${arguments[*]} " != *" $package "* ]] || fail "$file: its package would overwrite $package, which was made from ${files[0]}; rename one of them"
  export_model "$file" "$package" "${own[@]}" || exit 1
  case "$(sed -n 's/^task: *//p' "$package/model.yaml")" in
    detect) task="a detector" use=(--detector "$package") ;;
    segment) task="a segmenter" use=(--segmenter "$package") ;;
    embed) task="an embedder" use=(--set "categorize.model=$package") ;;
  esac
  [[ "$task" == "a segmenter" || "$file" != "${SEGMENTER:-}" ]] || echo "model: $file was named as SEGMENTER, but is $task: run $package with ${use[0]}"
  tasks+=" $task"
  arguments+=("${use[@]}")
done

program=millrace
command -v millrace > /dev/null || program="$here/build/release/apps/millrace"
echo
echo "run it with:"
printf '  %q run' "$program"
[[ "$tasks" == " a detector" ]] && printf ' %q' "$here/configs/detect.yaml"
[[ "$tasks" == " an embedder" ]] && printf ' %q' "$here/configs/categories.yaml"
printf ' --input PICTURES'
printf ' %q' "${arguments[@]}"
[[ "$tasks" == " a segmenter" ]] && printf ' --detector DETECTOR.pkg'
printf ' --output RESULTS\n'
