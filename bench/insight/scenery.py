"""The pictures of the real runs: scenes in several forms that differ only in what decoding them costs."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COUNT = 16
HUGE = (3840, 2160)
FORMS = ("plain", "progressive", "huge", "huge plain")
CHEAPER = {"progressive": "plain", "huge": "huge plain"}  # the same picture, not progressive


def prepare(folder, photographs=None):
    """Writes COUNT pictures of each form into `folder`, once. Returns their paths by form."""
    # Here, because only drawing needs OpenCV.
    sys.path.append(str(ROOT / "models/demo"))
    import cv2
    import scenes

    folder.mkdir(parents=True, exist_ok=True)
    made = {form: [folder / f"{form.replace(' ', '-')}-{number:02}.jpg" for number in range(COUNT)] for form in FORMS}
    names = sorted(photographs.rglob("*.jpg")) if photographs else []
    if photographs and not names:
        sys.exit(f"{photographs}: has no .jpg files; name another folder, or leave out --pictures")
    for number in range(COUNT):
        if all(made[form][number].exists() for form in FORMS):
            continue
        if names:
            picture = cv2.resize(cv2.imread(str(names[number % len(names)])), (scenes.WIDTH, scenes.HEIGHT))
        else:
            picture = scenes.draw("front", 800_000 + number, "held_out")[0].picture[..., ::-1]
        plain = [cv2.IMWRITE_JPEG_QUALITY, 90]
        progressive = [*plain, cv2.IMWRITE_JPEG_PROGRESSIVE, 1]
        large = cv2.resize(picture, HUGE, interpolation=cv2.INTER_CUBIC)
        for form, pixels, options in (
            ("plain", picture, plain),
            ("progressive", picture, progressive),
            ("huge", large, progressive),
            ("huge plain", large, plain),
        ):
            cv2.imwrite(str(made[form][number]), pixels, options)
    return made


def links(folder, made, form, count, cheaper):
    """Makes `count` links to pictures of a form; the share `cheaper` of them is not progressive. Returns their paths."""
    folder.mkdir(parents=True)
    paths = []
    for number in range(count):
        is_cheaper = int((number + 1) * cheaper) > int(number * cheaper)  # spread evenly
        paths.append(folder / f"{number:05}.jpg")
        os.symlink(made[CHEAPER[form] if is_cheaper else form][number % COUNT], paths[-1])
    return paths
