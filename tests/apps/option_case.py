"""Short runs of the program with other options: a base class for tests of options."""

import json

import program
from program import Case


class OptionCase(Case):
    def setUp(self):
        super().setUp()
        self.input = self.folder / "in"
        self.runs = 0

    def go(self, recipe, *arguments, code=program.OK, stdin=b"", **values):
        """Runs into a new output folder; `values` are options, with names written group__name."""
        self.runs += 1
        self.out = self.folder / f"out{self.runs}"
        file = self.write(f"recipe{self.runs}.yaml", recipe)
        words = [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
        self.done = self.run_ok(file, *(arguments or ["--input", self.input]), "--output", self.out, *words, code=code, stdin=stdin)
        return program.lines(self.out)

    def decode(self, *arguments, **values):
        return self.go(program.DECODE_ONLY, *arguments, **values)

    def detect(self, **values):
        """Objects of street.jpg."""
        street = program.picture("street.jpg")
        recipe = "stages: [decode, preprocess, detect, encode]\n"
        return self.go(recipe, "--input", street, "--detector", program.package("yolox"), **values)[0]["objects"]

    def segment(self, boxes=(1,), **values):
        """Runs the segmenter on one picture for each entry of `boxes`, with that many manifest boxes.

        Returns the counts of calls.
        """
        rows = []
        for i, count in enumerate(boxes):
            program.write_picture(self.input / f"{i}.jpg", 100, 80, seed=i)
            rows.append({"path": f"{i}.jpg", "boxes": [[3 * j, 5, 40, 30 + j] for j in range(count)]})
        manifest = self.write("in/m.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.lines = self.go("", "--input", manifest, "--segmenter", program.package("sam_small"), **values)
        return program.report(self.out)["calls"]

    def resource(self, name):
        return next(r for r in program.report(self.out)["run_window"]["resources"] if r["name"] == name)

    def gate(self):
        return program.report(self.out)["run_window"]["gate"]

    def lacked(self):
        """Seconds without credits, by the option that limited them."""
        return program.report(self.out)["run_window"]["source"]["without_credits_by_limit_s"]

    def many(self, count=60, width=800, height=600):
        original = program.write_picture(self.folder / "one.jpg", width, height)
        self.input.mkdir(exist_ok=True)
        for i in range(count):
            (self.input / f"{i:03}.jpg").hardlink_to(original)
