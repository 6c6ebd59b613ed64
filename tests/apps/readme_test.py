"""Runs the code of the pages for users: command lines, Python and SQL. One of the pictures is broken."""

import contextlib
import io
import json
import os
import re
import shlex
import unittest
from pathlib import Path

import program

ROOT = Path(__file__).resolve().parents[2]


def page(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name, language):
    """The fenced blocks of a language on a page, in order."""
    return re.findall(rf"```{language}\n(.*?)```", page(name), re.DOTALL)


def command(beginning, name="README.md"):
    """The only indented command line of the page with this beginning, without its comment."""
    found = [line.strip().split("  #")[0].strip() for line in page(name).splitlines() if line.startswith("    " + beginning)]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} lines of {name} begin with '{beginning}': {found}")
    return shlex.split(found[0])


class Page(program.Case):
    def run_in_folder(self, words, code):
        self.assertEqual(words[0], "millrace")
        done = program.millrace(*words[1:], cwd=self.folder)
        self.assertEqual(done.code, code, done)
        return done

    def python(self, block):
        text = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(text):
            exec(compile(block, "page", "exec"), {})  # noqa: S102: a reader runs it, too
        return text.getvalue()


class BuiltInModels(Page):
    def test_failed_pictures_are_retried_from_a_list(self):
        for view in ("front", "left", "right"):
            program.write_picture(self.folder / f"pictures/{view}/0.png", 160, 120)
        broken = self.folder / "pictures/left/1.png"
        broken.write_bytes(b"\xff\xd8\xff\xe0 nothing more")
        self.run_in_folder(["millrace", "run", "--input", "pictures/", "--output", "out/"], program.SOME_FAILED)
        self.python(blocks("docs/resume_and_repair.md", "python")[1])
        program.write_picture(broken, 160, 120)
        self.run_in_folder(command("millrace run --input failed.txt", "docs/resume_and_repair.md"), program.OK)
        (of_left,) = (line for line in program.lines(self.folder / "out") if line["path"] == "left/0.png")
        (redone,) = program.lines(self.folder / "redone")
        self.assertEqual((redone["path"], redone["state"], redone["view"]), ("pictures/left/1.png", "ok", "left"))
        self.assertEqual(redone["detector"], of_left["detector"])


class Readme(Page):
    def setUp(self):
        super().setUp()
        for i in range(4):
            program.write_picture(self.folder / f"pictures/front/{i}.png", 320, 240, seed=i)
        (self.folder / "pictures/broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 nothing more")
        # Seeded packages with the names of the README: they are quick, and find objects everywhere.
        os.symlink(program.package("yolov8n"), self.folder / "yolov8n.pkg")
        os.symlink(program.package("sam_small"), self.folder / "mobile_sam.pkg")
        self.run_in_folder(command("millrace run --input pictures/ --output out/"), program.SOME_FAILED)
        self.lines = program.lines(self.folder / "out")
        self.before = os.getcwd()
        os.chdir(self.folder)

    def tearDown(self):
        os.chdir(self.before)
        super().tearDown()

    def test_python_reads_every_object_with_its_mask(self):
        printed = self.python(blocks("docs/results.md", "python")[0]).splitlines()
        objects = [found for line in self.lines for found in line.get("objects", [])]
        self.assertGreater(len(objects), 0)
        self.assertEqual([int(line.rsplit(" ", 1)[1]) for line in printed], [found["area"] for found in objects])

    def test_failed_pictures_are_retried_from_a_manifest(self):
        self.assertEqual([line["path"] for line in self.lines if line["state"] == "failed"], ["broken.jpg"])
        self.python(blocks("docs/resume_and_repair.md", "python")[0])
        program.write_picture(self.folder / "whole.png", 320, 240)
        (self.folder / "whole.png").rename(self.folder / "pictures/broken.jpg")
        self.run_in_folder(command("millrace run --input pictures/failed.jsonl", "docs/resume_and_repair.md"), program.OK)
        redone = program.lines(self.folder / "redone")
        self.assertEqual([(line["path"], line["state"]) for line in redone], [("broken.jpg", "ok")])

    def test_duckdb_counts_what_the_segments_hold(self):
        import duckdb

        by_class, by_view = (duckdb.sql(block).fetchall() for block in blocks("docs/results.md", "sql"))
        objects = [found for line in self.lines for found in line.get("objects", [])]
        names = {found["name"] for found in objects}
        self.assertEqual({row[0]: row[1] for row in by_class}, {name: sum(o["name"] == name for o in objects) for name in names})
        first = by_class[0]
        own = [o for o in objects if o["name"] == first[0]]
        self.assertAlmostEqual(first[2], sum(o["score"] for o in own) / len(own), delta=0.0051)
        self.assertAlmostEqual(first[3], sum(o["area"] for o in own) / len(own), delta=0.51)
        self.assertEqual([row[:3] for row in by_view], [("default", "failed", 1), ("default", "ok", 4)])
        self.assertEqual(by_view[1][3], len(objects))

    def test_duckdb_reads_outputs_without_masks_names_or_objects(self):
        import duckdb

        boxes = {"view": "default", "state": "ok", "objects": [{"box": [1, 2, 3, 4], "score": 0.5, "class": 3, "name": "bus"}]}
        nameless = {"view": "default", "state": "ok", "objects": [{"box": [1, 2, 3, 4], "score": 1, "class": 3}]}
        failed = {"view": "default", "state": "failed", "reason": "empty"}
        for line, by_class, objects in ((boxes, [("bus", 1, 0.5, None)], 1), (nameless, [("class 3", 1, 1, None)], 1), (failed, [], None)):
            (self.folder / "out/segments/000000.jsonl").write_text(json.dumps(line) + "\n")
            found = [duckdb.sql(block).fetchall() for block in blocks("docs/results.md", "sql")]
            self.assertEqual(found, [by_class, [("default", line["state"], 1, objects, objects)]])

    def test_the_readme_has_a_query_of_the_page(self):
        self.assertIn(blocks("README.md", "sql")[0], blocks("docs/results.md", "sql"))

    def test_the_same_command_again_has_nothing_to_do(self):
        done = self.run_in_folder(command("millrace run --input pictures/ --output out/"), program.SOME_FAILED)
        self.assertIn("4 ok, 1 failed of 5 pictures", done.out)

    def test_status(self):
        words = [word for word in command("millrace status out/")]
        self.assertEqual(self.run_in_folder(words, program.OK).code, program.OK)


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        anchors = {}
        pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "models").glob("*/README.md"))]
        for file in pages:
            headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL), re.MULTILINE)
            anchors[file] = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        for file in pages:
            for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", file.read_text(encoding="utf-8")):
                if "://" in target:
                    continue
                other = (file.parent / target).resolve() if target else file
                self.assertTrue(other.exists(), f"{file.name} links to {target}")
                if anchor:
                    self.assertIn(anchor, anchors[other], f"{file.name} links to {target}#{anchor}")


if __name__ == "__main__":
    program.main()
