"""The photographs of the test data through YOLOX-nano with its real weights."""

import program
from PIL import Image
from program import Case

# Centres of three persons of street.jpg, from the data's README: ONNX Runtime on the same weights.
PERSONS = ((284, 630), (133, 646), (749, 645))


class Photographs(Case):
    def test_objects_are_at_their_known_places(self):
        folder = program.picture("street.jpg").parent
        out = self.folder / "out"
        self.run_ok("--input", folder, "--detector", program.package("yolox"), "--segmenter", program.package("sam_small"), "--output", out,
                    "--set", "detect.conf=0.3", "--set", "batch.size=4", "--format", "overlay")
        lines = {line["path"]: line for line in program.lines(out)}
        self.assertEqual(sorted(lines), sorted(f.name for f in folder.glob("*.jpg")))
        street = lines["street.jpg"]
        self.assertEqual((street["width"], street["height"]), (810, 1080))
        persons = [o for o in street["objects"] if o["name"] == "person"]
        for x, y in PERSONS:
            near = [o for o in persons if abs(o["box"][0] + o["box"][2] / 2 - x) < 20 and abs(o["box"][1] + o["box"][3] / 2 - y) < 20]
            self.assertEqual(len(near), 1, (x, y, persons))
            # The edge of the picture cuts the right person: its box ends at the edge.
            width, height = near[0]["box"][2:]
            self.assertTrue(90 < width < 170 and 420 < height < 530, near)
        self.assertGreater(max(o["score"] for o in persons), 0.8)
        self.assertIn("bus", {o["name"] for o in street["objects"]})
        for line in lines.values():
            with Image.open(folder / line["path"]) as picture:
                self.assertEqual((line["width"], line["height"]), picture.size)
            for found in line["objects"]:
                x, y, width, height = found["box"]
                self.assertTrue(x >= 0 and y >= 0 and x + width <= line["width"] + 0.01 and y + height <= line["height"] + 0.01, found)
        # The package allows any batch size, so each batch of 4 is one call.
        report = program.report(out)
        self.assertEqual(report["batch_size"], 4)
        self.assertEqual(report["calls"]["detector_calls"], -(-len(lines) // 4))

    def test_batches_of_four_find_what_single_pictures_do(self):
        folder = program.picture("street.jpg").parent
        recipe = self.write("r.yaml", "stages: [decode, preprocess, detect, encode]\n")
        found = []
        for size in (1, 4):
            out = self.folder / f"out{size}"
            self.run_ok(recipe, "--input", folder, "--detector", program.package("yolox"), "--output", out, "--set", f"batch.size={size}")
            found.append(program.lines(out))
        self.assertEqual(found[0], found[1])


if __name__ == "__main__":
    program.main()
