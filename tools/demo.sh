#!/usr/bin/env bash
# Shows what the program does, with nothing but this checkout: draws 48 pictures, runs the pipeline on them with the built-in
# models, and says where to look. build/demo is made anew each time.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

[[ -e models/builtin/segmenter.pkg ]] || fail "models/builtin holds no packages; 'make demo-models' trains them"
# Debian's own Python has numpy and OpenCV from its packages; a Python from elsewhere usually has not.
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
  $demo/out/segments/     one line of JSON a picture: what pipelines read
  $demo/out/coco.json     the same for pycocotools; $demo/pictures/drawn-scenes.json is what was drawn, with numbers of
                               its own for pictures and classes: compare them by name
  $demo/out/runs/         report.json of this run
The line behind the \$ again finishes at once: everything is done. Your own pictures, with real models:
  make model WEIGHTS=yolov8n.pt SEGMENTER=mobile_sam.pt
  build/release/apps/millrace run --input YOUR-PICTURES/ --output out/ --detector yolov8n.pkg --segmenter mobile_sam.pkg --format overlay
END
