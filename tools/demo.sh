#!/usr/bin/env bash
# Shows the program at work, without downloads.
# It draws 48 pictures, runs the built-in models on them, and lists the results.
# Each call deletes build/demo and makes it again.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

[[ -e models/builtin/segmenter.pkg ]] || fail "models/builtin has no packages; 'make demo-models' trains them, or copy the folder from another checkout"
# Debian's Python first: it has the packages numpy and OpenCV, which another Python usually lacks.
for python in /usr/bin/python3 python3; do
  if "$python" -c 'import cv2, numpy' 2> /dev/null; then break; fi
  python=""
done
[[ -n "$python" ]] || fail "drawing needs a python3 with numpy and OpenCV (Debian: python3-numpy python3-opencv); 'make setup' installs them"

demo=build/demo
rm -rf "$demo"
mkdir -p "$demo"
"$python" models/demo/scenes.py "$demo/pictures" --scenes 16

command=(build/release/apps/millrace run --input "$demo/pictures" --output "$demo/out" --format overlay,coco)
printf '\n$ %s\n' "${command[*]}"
"${command[@]}"

cat << END

Look at
  $demo/out/overlay/      the pictures with boxes, masks, classes and scores: open $demo/out/overlay/front/0000.jpg.jpg
  $demo/out/segments/     one line of JSON for each picture, for other programs
  $demo/out/coco.json     the same objects for pycocotools. $demo/pictures/drawn-scenes.json has the objects that were
                               drawn. It numbers pictures and classes differently: compare them by name
  $demo/out/runs/         open report.html of this run in a browser; report.json is for programs
Repeat the command behind the \$: it ends at once, because nothing is left to do. For your own pictures, with real models:
  make model WEIGHTS=yolov8n.pt SEGMENTER=mobile_sam.pt
  build/release/apps/millrace run --input YOUR-PICTURES/ --output out/ --detector yolov8n.pkg --segmenter mobile_sam.pkg --format overlay
END
