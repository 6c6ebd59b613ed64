"""Every way to name pictures, and messages about skipped files."""

import base64
import os

import program
from program import Case, millrace


class Inputs(Case):
    """Every way to name pictures, through the quickest recipe."""

    def setUp(self):
        super().setUp()
        self.recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.input = self.folder / "in"

    def go(self, *arguments, code=program.OK, **options):
        """Runs into a new output folder; returns its lines."""
        self.out = self.folder / f"out{len(list(self.folder.glob('out*')))}"
        self.done = self.run_ok(self.recipe, "--output", self.out, *arguments, code=code, **options)
        return program.lines(self.out)

    def paths(self, *arguments, **options):
        return [line["path"] for line in self.go(*arguments, **options)]

    def test_a_folder_is_walked_in_byte_order(self):
        for name in ("b/2.jpg", "b/10.jpg", "a.png", "B.jpeg", "b.jpg", "c/d/e/f.jpg"):
            program.write_picture(self.input / name)
        self.assertEqual(self.paths("--input", self.input), ["B.jpeg", "a.png", "b/10.jpg", "b/2.jpg", "b.jpg", "c/d/e/f.jpg"])

    def test_files_globs_and_lists(self):
        program.write_pictures(self.input, 4)
        a, b, c = (self.input / f"{i:04}.jpg" for i in range(3))
        self.assertEqual(self.paths("--input", a), ["0000.jpg"])
        self.assertEqual([name.rsplit("/", 1)[1] for name in self.paths("--input", b, a)], ["0001.jpg", "0000.jpg"])
        self.assertEqual(self.paths("--input", f"{self.input}/000[12].jpg"), ["0001.jpg", "0002.jpg"])
        text = self.write("list.txt", f"{c}\n\n{a}\r\n{b}")
        self.assertEqual(self.paths("--input", text), [str(c), str(a), str(b)])
        self.assertEqual(self.paths("--input", "-", stdin=f"{c}\n{a}".encode()), [str(c), str(a)])
        zeros = f"{c}\0{a}\0".encode()
        self.assertEqual(self.paths("--input", "-", "-0", stdin=zeros), [str(c), str(a)])
        self.assertEqual(self.paths("--input", self.write("zeros.txt", zeros), "--null"), [str(c), str(a)])

    def test_manifests(self):
        program.write_pictures(self.input, 3)
        csv = self.write("in/m.csv", 'note,path,view\n"a, b",0001.jpg,left\nx,0000.jpg,right\n')
        views = self.write("views.yaml", program.DECODE_ONLY + "views: [{name: left}, {name: right}]\n")
        self.recipe = views
        self.assertEqual([(line["path"], line["view"]) for line in self.go("--input", csv)], [("0001.jpg", "left"), ("0000.jpg", "right")])
        name = base64.b64encode(b"0002.jpg").decode()
        jsonl = self.write("in/m.jsonl", f'{{"path": "?", "path_b64": "{name}", "view": "left"}}\n')
        self.assertEqual([(line["path"], line["view"]) for line in self.go("--input", jsonl)], [("0002.jpg", "left")])
        for text, hint in (("path,view\n0000.jpg,middle\n", "middle"), ("file\n0000.jpg\n", "path"), ("path,bbox\n0000.jpg,1\n", "'boxes'")):
            wrong = self.write("in/w.csv", text)
            done = millrace("run", views, "--input", wrong, "--output", self.folder / "wrong")
            self.assertEqual(done.code, program.USAGE, done)
            self.assertIn(hint, done.err)

    def test_boxes_of_a_manifest_are_the_objects(self):
        program.write_picture(self.input / "a.jpg", 100, 80)
        boxes = self.write("in/m.jsonl", '{"path": "a.jpg", "boxes": [[10, 20, 30, 40, 7], [0.5, 0, 99.5, 80]]}\n{"path": "a.jpg", "boxes": []}\n')
        self.recipe = self.write("boxes.yaml", "stages: [decode, preprocess, detect, encode]\n")
        lines = self.go("--input", boxes, "--detector", program.package("yolox"))
        self.assertEqual([[o["box"] for o in line["objects"]] for line in lines], [[[10, 20, 30, 40], [0.5, 0, 99.5, 80]], []])
        self.assertEqual([o["class"] for o in lines[0]["objects"]], [7, 0])
        self.assertEqual(program.report(self.out)["calls"]["detector_calls"], 0)

    def test_another_list_on_stdin_is_refused_for_a_finished_output(self):
        program.write_pictures(self.input, 4)
        names = [f"{self.input}/{i:04}.jpg\n".encode() for i in range(4)]
        command = ["--input", "-", "--output", self.folder / "out"]
        self.run_ok(self.recipe, *command, stdin=names[0] + names[1])
        for stdin, code, planned in ((names[0] + names[1], program.OK, 2), (b"", program.OK, 2), (names[2], program.MISMATCH, 2),
                                     (names[0], program.MISMATCH, 2), (b"".join(names[:3]), program.OK, 3)):
            self.run_ok(self.recipe, *command, stdin=stdin, code=code)
            self.assertEqual(len(program.lines(self.folder / "out")), planned)

    def test_a_named_video_is_counted_like_one_in_a_folder(self):
        program.write_picture(self.input / "a.jpg")
        self.write("in/clip.mp4", "x")
        listed = self.write("list.txt", f"{self.input}/a.jpg\n{self.input}/clip.mp4\n")
        self.assertEqual(len(self.go("--input", listed)), 1)
        self.assertEqual(program.report(self.out)["input"]["videos_not_read"], 1)
        self.assertIn("clip.mp4", self.done.out)

    def test_limit_every_and_sample(self):
        program.write_pictures(self.input, 40, 16, 12)
        everything = self.paths("--input", self.input)
        self.assertEqual(self.paths("--input", self.input, "--limit", "7"), everything[:7])
        self.assertEqual(self.paths("--input", self.input, "--every", "9"), everything[::9])
        self.assertEqual(self.paths("--input", self.input, "--every", "9", "--limit", "2"), everything[:18:9])
        self.assertEqual(program.report(self.out)["input"]["not_selected"] > 0, True)
        half = self.paths("--input", self.input, "--sample", "50%")
        self.assertEqual(self.paths("--input", self.input, "--sample", "0.5"), half)
        self.assertTrue(5 < len(half) < 35, half)
        other = self.paths("--input", self.input, "--sample", "50%", "--set", "input.seed=1")
        self.assertNotEqual(other, half)
        program.write_picture(self.input / "new.jpg")
        self.assertEqual([p for p in self.paths("--input", self.input, "--sample", "50%") if p != "new.jpg"], half)
        for wrong in ("0", "101%", "half", "%", "-1%"):
            self.assertIn("input.sample", self.run_ok(self.recipe, "--input", self.input, "--output", self.folder / "w", f"--sample={wrong}", code=program.USAGE).err)

    def test_links_and_loops(self):
        program.write_picture(self.folder / "elsewhere/x.jpg")
        program.write_picture(self.input / "a.jpg")
        os.symlink(self.folder / "elsewhere/x.jpg", self.input / "file.jpg")
        os.symlink(self.folder / "elsewhere", self.input / "dir")
        os.symlink(self.input, self.input / "loop")
        self.assertEqual(self.paths("--input", self.input), ["a.jpg", "file.jpg"])
        skipped = program.report(self.out)["input"]["skipped"]
        self.assertEqual(skipped["folder_link"], 2)
        self.assertEqual(self.paths("--input", self.input, "--follow-dirs"), ["a.jpg", "dir/x.jpg", "file.jpg"])
        self.assertEqual(program.report(self.out)["input"]["skipped"]["loop"], 1)

    def test_an_input_without_pictures_is_named(self):
        program.write_picture(self.input / "a.jpg")
        pattern = self.input / "*.tiff"
        self.assertEqual(self.paths("--input", pattern, self.input / "a.jpg"), [str(self.input / "a.jpg")])
        self.assertEqual(program.report(self.out)["input"]["inputs_without_pictures"], 1)
        self.assertIn("1 input without a picture", self.done.out)
        self.assertIn("*.tiff", self.done.out)

    def test_files_that_are_not_pictures_are_counted(self):
        program.write_picture(self.input / "a.jpg")
        self.write("in/b.txt.bak", "x")
        self.write("in/notes.md", "x")
        self.write("in/.hidden.jpg", "x")
        self.write("in/Thumbs.db", "x")
        self.write("in/clip.mp4", "x")
        os.mkfifo(self.input / "pipe.jpg")
        self.assertEqual(self.paths("--input", self.input), ["a.jpg"])
        found = program.report(self.out)["input"]
        self.assertEqual(found["skipped"], {"other_extension": 2, "hidden": 1, "system_file": 1, "not_regular": 1})
        self.assertEqual(found["videos_not_read"], 1)
        self.assertIn("clip.mp4", self.done.out)
        self.assertIn("not read yet", self.done.out)

    def test_an_input_without_pictures_is_a_usage_error(self):
        self.input.mkdir()
        for arguments in ([self.input], [self.folder / "none"], [f"{self.input}/*.jpg"]):
            done = millrace("run", self.recipe, "--input", *arguments, "--output", self.folder / "out")
            self.assertEqual(done.code, program.USAGE, done)
            self.assertIn(str(self.folder), done.err)

    def test_names_of_any_bytes(self):
        names = [b"\xff\xfe.jpg", b"new\nline.jpg", b"quote\".jpg", b"%s.jpg", b"-dash.jpg", b"caf\xc3\xa9.jpg", b"cafe\xcc\x81.jpg"]
        original = program.write_picture(self.folder / "one.jpg")
        self.input.mkdir()
        for name in names:
            os.link(original, os.fsencode(self.input) + b"/" + name)
        lines = self.go("--input", self.input)
        found = [base64.b64decode(line["path_b64"]) if "path_b64" in line else line["path"].encode() for line in lines]
        self.assertEqual(found, sorted(names))
        self.assertEqual({line["state"] for line in lines}, {"ok"})

    def test_a_path_listed_twice_is_two_items(self):
        program.write_pictures(self.input, 1)
        text = self.write("twice.txt", f"{self.input}/0000.jpg\n" * 3)
        lines = self.go("--input", text, "--format", "overlay,png,coco")
        self.assertEqual([(line["id"], line["state"]) for line in lines], [(0, "ok"), (1, "ok"), (2, "ok")])
        self.assertEqual(len(program.tree(self.out / "overlay")), 1)

    def test_dry_run_writes_nothing(self):
        program.write_pictures(self.input, 12)
        self.write("in/clip.mp4", "x")
        before = program.tree(self.folder)
        done = self.run_ok(self.recipe, "--input", self.input, "--output", self.folder / "out", "--dry-run")
        self.assertEqual(program.tree(self.folder), before)
        self.assertFalse((self.folder / "out").exists())
        for word in ("12 pictures", "view default: 12", ".jpg: 12", "clip.mp4", "decode -> encode", "nothing was written"):
            self.assertIn(word, done.out)

    def test_dry_run_shows_the_plan_of_the_output(self):
        program.write_pictures(self.input, 3)
        command = [self.recipe, "--input", self.input, "--output", self.input / "out"]
        self.run_ok(*command, "--format", "overlay")
        before = program.tree(self.folder)
        done = self.run_ok(*command, "--format", "overlay", "--dry-run")
        self.assertRegex(done.out, r"^3 pictures, ")  # overlays in the input do not count
        self.assertRegex(done.out, r"(?m)^output: 3 planned, 3 done, 0 left; .*--add-new")
        refused = [self.run_ok(*command, *dry, code=program.MISMATCH) for dry in ([], ["--dry-run"])]
        self.assertIn("encode.format", refused[0].err)
        self.assertEqual(refused[1].err, refused[0].err)
        self.assertEqual(program.tree(self.input / "out/plan"), {name[12:]: sha for name, sha in before.items() if name.startswith("in/out/plan/")})
        program.write_picture(self.input / "new.jpg")
        done = self.run_ok(*command, "--format", "overlay", "--add-new", "--dry-run")
        self.assertRegex(done.out, r"(?m)^output: 3 planned, 3 done, 0 left; a run adds the new pictures of this input$")

    def test_dry_run_refuses_a_changed_list_as_the_run_does(self):
        program.write_pictures(self.input, 2)
        listed = self.write("list.txt", f"{self.input}/0000.jpg\n")
        command = [self.recipe, "--input", listed, "--output", self.folder / "out"]
        self.run_ok(*command)
        listed.write_text(f"{self.input}/0001.jpg\n")
        refused = [self.run_ok(*command, *dry, code=program.MISMATCH) for dry in ([], ["--dry-run"])]
        self.assertIn("list.txt", refused[0].err)
        self.assertEqual(refused[1].err, refused[0].err)

    def test_an_output_inside_the_input_is_not_read(self):
        program.write_pictures(self.input, 2)
        for _ in range(2):
            done = self.run_ok(self.recipe, "--input", self.input, "--output", self.input / "out", "--format", "overlay")
        self.assertEqual(len(program.lines(self.input / "out")), 2, done)


if __name__ == "__main__":
    program.main()
