"""The drawn scenes are as models/demo/scenes.py describes them.

The truth is compared by pycocotools and pixel by pixel.
"""

import sys
import unittest
from pathlib import Path

import numpy as np
from pycocotools import mask as coco_mask

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "models/demo"))
import render  # noqa: E402
import scenes  # noqa: E402
import textures  # noqa: E402

SEEDS = range(7001, 7009)  # of scenes that no training and no other test uses


class Watched(render.Table):
    """Counts the distractors that are drawn before the first object, and keeps every silhouette."""

    made = []

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.distractors, self.flat, self.lengths = 0, 0, {}
        Watched.made.append(self)

    def lay(self, x, y, patch, identity=0, label=None):
        if not identity and not self.laid:
            self.distractors += 1
            self.flat += not patch.lit
        if identity:
            self.lengths[identity] = max(np.ptp(places) + 1 for places in np.nonzero(patch.inside))
        super().lay(x, y, patch, identity, label)


class Scenes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kept, scenes.Table = scenes.Table, Watched
        try:
            cls.drawn = {(view, seed): scenes.draw(view, seed, "held_out") for view in scenes.VIEWS for seed in SEEDS}
        finally:
            scenes.Table = kept
        cls.tables = dict(zip(cls.drawn, Watched.made))

    def objects(self):
        return [found for scene, _ in self.drawn.values() for found in scene.objects]

    def test_a_scene_is_a_picture_of_1080p_with_5_to_20_objects(self):
        for scene, jpeg in self.drawn.values():
            self.assertEqual(scene.picture.shape, (1080, 1920, 3))
            self.assertEqual(jpeg[:2], b"\xff\xd8")
            self.assertLessEqual(len(scene.objects), 20)
            self.assertGreaterEqual(len(scene.objects), 5)

    def test_objects_are_24_to_400_pixels_long(self):
        lengths = [length for table in self.tables.values() for length in table.lengths.values()]
        self.assertGreaterEqual(min(lengths), 24 - 2)  # edges are soft: the last pixel may be less than half opaque
        self.assertLessEqual(max(lengths), 400 + 2)
        self.assertLess(np.percentile(lengths, 10), 80)
        self.assertGreater(np.percentile(lengths, 90), 200)

    def test_a_third_of_the_objects_is_covered_by_15_to_60_percent(self):
        covered = np.array([found.covered for found in self.objects()])
        share = np.mean(covered > 0.05)
        self.assertGreater(share, 0.25)
        self.assertLess(share, 0.40)
        hidden = covered[covered > 0.05]
        self.assertGreaterEqual(hidden.min(), 0.15 - 0.001)
        self.assertLessEqual(hidden.max(), 0.60 + 0.001)
        self.assertGreater(np.ptp(hidden), 0.30)  # the whole range occurs

    def test_at_least_20_distractors_of_both_kinds_lie_in_every_scene(self):
        for table in self.tables.values():
            self.assertGreaterEqual(table.distractors, 20)
        self.assertGreater(sum(table.flat for table in self.tables.values()), 0)
        self.assertLess(sum(table.flat for table in self.tables.values()), sum(table.distractors for table in self.tables.values()))

    def test_every_class_of_every_view_occurs(self):
        for view in scenes.VIEWS:
            labels = {found.label for (name, _), (scene, _) in self.drawn.items() if name == view for found in scene.objects}
            self.assertEqual(labels, set(range(6)), view)

    def test_masks_are_the_visible_part_of_an_object_and_boxes_are_tight(self):
        for name, (scene, _) in self.drawn.items():
            times = np.zeros((1080, 1920), int)
            for found in scene.objects:
                x, y, width, height = found.box
                self.assertEqual(found.mask.shape, (height, width))
                for edge in (found.mask[0], found.mask[-1], found.mask[:, 0], found.mask[:, -1]):
                    self.assertTrue(edge.any())
                times[y : y + height, x : x + width] += found.mask
            self.assertLessEqual(times.max(), 1, "a pixel belongs to more than one object")
            self.assertTrue(np.array_equal(times > 0, self.tables[name].owner > 0))

    def test_the_same_seeds_draw_the_same_picture_and_others_another(self):
        (view, seed), (scene, jpeg) = next(iter(self.drawn.items()))
        again, again_jpeg = scenes.draw(view, seed, "held_out")
        self.assertEqual(again_jpeg, jpeg)
        self.assertEqual([found.box for found in again.objects], [found.box for found in scene.objects])
        self.assertNotEqual(scenes.draw(view, seed, "train")[1], jpeg)
        self.assertEqual(len({jpeg for _, jpeg in self.drawn.values()}), len(self.drawn))

    def test_held_out_textures_are_not_those_of_training(self):
        train, held_out = (set(textures.SETS[name]) for name in ("train", "held_out"))
        self.assertFalse(train & held_out)
        self.assertFalse(any(np.array_equal(textures.pattern(a), textures.pattern(b)) for a in list(train)[:14] for b in list(held_out)[:14]))

    def test_the_truth_says_what_was_drawn(self):
        truth = scenes.Truth()
        for (view, seed), (scene, _) in self.drawn.items():
            truth.add(view, f"{view}/{seed}.jpg", scene)
        names = {entry["id"]: entry["name"] for entry in truth.document["categories"]}
        self.assertEqual(len(set(names.values())), 18)
        rows = iter(truth.document["annotations"])
        for (view, _), (scene, _) in self.drawn.items():
            for found in scene.objects:
                row = next(rows)
                self.assertEqual(names[row["category_id"]], scenes.VIEWS[view].classes[found.label])
                coded = coco_mask.frPyObjects(row["segmentation"], *row["segmentation"]["size"])
                whole = coco_mask.decode(coded).astype(bool)
                x, y, width, height = found.box
                self.assertTrue(np.array_equal(whole[y : y + height, x : x + width], found.mask))
                self.assertEqual(np.count_nonzero(whole), row["area"])
                self.assertEqual(coco_mask.toBbox(coded).astype(int).tolist(), list(found.box))
                self.assertEqual(row["bbox"], list(found.box))
        self.assertIsNone(next(rows, None))


if __name__ == "__main__":
    unittest.main(verbosity=2)
