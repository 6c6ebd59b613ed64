"""Hostile input through the real program. The labels C1 to C8 and N1 to N13 group the faults.

A bad file costs only its own result. The run names the file and the reason in one line on the console and one in
errors.jsonl. It ends with 3 and stays within its memory. The line of every good picture is the same as without the
bad file.
"""

import json
import os
import re
import socket
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
from PIL import Image

import hostile_pictures
import program
from program import OK, SOME_FAILED, USAGE

# Limit on the memory that a bad file adds to a run over the good pictures.
# A decompression bomb of the catalogue unpacks to at least 256 MB.
# A picture that is reduced while decoding takes a slab of 64 MB and some rows.
MEMORY_MB = 128
TURNED = ("turned_1.png", "turned_2.png", "turned_3.png", "turned_4.png", "turned_5.png", "turned_6.png", "turned_7.png", "turned_8.png")


def by_path(output):
    """Segment lines by path, without the id, which depends on the other pictures."""
    found = {}
    for line in program.lines(output):
        del line["id"]
        found[line.get("path_b64", line["path"])] = line
    return found


def errors(output):
    return [json.loads(line) for file in sorted(Path(output).glob("runs/*/errors.jsonl")) for line in file.read_text().splitlines()]


def run_measured(*arguments):
    """Runs `millrace run`; gives its exit code, stderr and peak memory in MB."""
    process = subprocess.Popen([program.PROGRAM, "run", *(str(a) for a in arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    err = process.stderr.read().decode()
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, err, usage.ru_maxrss / 1024


class HostileCase(program.Case):
    def setUp(self):
        super().setUp()
        self.recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.input = self.folder / "in"
        self.input.mkdir()
        self.output = self.folder / "out"

    def check_books(self, output):
        """Checks that every planned item is in exactly one line.

        Also checks that the counts of the report agree with the lines.
        """
        items = program.report(output)["items"]
        lines = program.lines(output)
        self.assertEqual([line["id"] for line in lines], list(range(items["planned"])))
        self.assertEqual(items["ok"], sum(line["state"] == "ok" for line in lines))
        self.assertEqual(sum(items["failed"].values()), sum(line["state"] == "failed" for line in lines))

    def decode_only(self, code, *more, **options):
        done = self.run_ok(self.recipe, "--input", self.input, "--output", self.output, "-q", *more, code=code, **options)
        self.check_books(self.output)
        return done

    def skipped(self):
        return program.report(self.output)["input"]["skipped"]


class Pictures(HostileCase):
    """C1 to C8: the content of files."""

    @classmethod
    def setUpClass(cls):
        cls.catalogue = hostile_pictures.catalogue()

    def good_pictures(self, folder):
        folder.mkdir(parents=True)
        for i, name in enumerate(("a.jpg", "m.png", "z.webp")):
            program.write_picture(folder / name, 300, 200, seed=i)

    def test_each_alone_among_good_pictures(self):
        self.good_pictures(self.folder / "good")
        code, _, usual_mb = run_measured(self.recipe, "--input", self.folder / "good", "--output", self.folder / "good_out", "-q")
        self.assertEqual(code, OK)
        good = by_path(self.folder / "good_out")

        def run_with(file):
            folder = self.folder / file.name
            self.good_pictures(folder / "in")
            (folder / "in" / file.name).write_bytes(file.data)
            return run_measured(self.recipe, "--input", folder / "in", "--output", folder / "out", "-q")

        series = re.compile("cut_(progressive_)?[1-9]")  # cut at nine places: only the row of the cut differs
        odd = [f for f in self.catalogue if (f.reason or f.warns or "bomb" in f.name) and not series.match(f.name)]
        with ThreadPoolExecutor(2) as pool:
            for file, (code, err, peak_mb) in zip(odd, pool.map(run_with, odd)):
                with self.subTest(file.name):
                    self.check_alone(file, good, code, err)
                    if not program.SANITIZED:
                        self.assertLess(peak_mb, usual_mb + MEMORY_MB)

    def check_alone(self, file, good, code, err):
        output = self.folder / file.name / "out"
        lines = by_path(output)
        line = lines.pop(file.name)
        self.assertEqual(lines, good)
        self.check_books(output)
        if file.reason is None:
            self.assertEqual((code, line["state"], err), (OK, "ok", ""))
            self.assertEqual(program.report(output)["calls"]["decode_warnings"], int(file.warns))
            return
        self.assertEqual((code, line["state"], line["reason"]), (SOME_FAILED, "failed", file.reason))
        self.assertIn(file.says, line["detail"])
        self.assertEqual(err, f"millrace: {file.name}: {file.reason}: {line['detail']}\n")
        (error,) = errors(output)
        self.assertEqual((error["path"], error["reason"], error["detail"]), (file.name, file.reason, line["detail"]))
        self.assertEqual(program.report(output)["items"]["failed"], {file.reason: 1})

    def test_all_at_once_with_the_pixels_of_what_is_decoded(self):
        for file in self.catalogue:
            (self.input / file.name).write_bytes(file.data)
        done = self.decode_only(SOME_FAILED, "--format", "overlay")
        lines = by_path(self.output)
        self.assertEqual(set(lines), {file.name for file in self.catalogue})
        for file in self.catalogue:
            line = lines[file.name]
            with self.subTest(file.name):
                self.assertEqual(line.get("reason"), file.reason)
                if file.reason is None:
                    self.assertEqual((line["width"], line["height"]), file.size)
                if file.pixels is not None:  # without objects an overlay is the picture itself
                    seen = numpy.asarray(Image.open(self.output / "overlay" / (file.name + ".jpg")).convert("RGB"))
                    self.assertEqual(seen.shape, file.pixels.shape)
                    self.assertLess(numpy.abs(seen.astype(float) - file.pixels).mean(), 3)
        failed = sum(file.reason is not None for file in self.catalogue)
        self.assertEqual(len(errors(self.output)), failed)
        # Messages name twenty files, then the file that lists all.
        told = done.err.splitlines()
        self.assertEqual(len(told), 21)
        self.assertRegex(told[-1], "more pictures failed: .*errors.jsonl")

    def test_the_full_pipeline_keeps_every_good_result(self):
        good = self.folder / "good"
        good.mkdir()
        for name in ("room.jpg", "street.jpg", "picture1.jpg"):
            (good / name).symlink_to(program.picture(name))
            (self.input / name).symlink_to(program.picture(name))
        models = ("--detector", program.package("yolox"), "--segmenter", program.package("sam_small"), "-q")
        self.run_ok("--input", good, "--output", self.folder / "good_out", *models)
        for file in self.catalogue:
            (self.input / file.name).write_bytes(file.data)
        self.run_ok("--input", self.input, "--output", self.output, *models, code=SOME_FAILED)
        self.check_books(self.output)
        expected, found = by_path(self.folder / "good_out"), by_path(self.output)
        self.assertGreater(sum("rle" in found for line in expected.values() for found in line["objects"]), 5)
        self.assertEqual({path: found[path] for path in expected}, expected)
        for file in self.catalogue:  # also pictures of one pixel, and of one pixel by 65,500
            self.assertEqual(found[file.name].get("reason"), file.reason, file.name)
        self.assertNotIn(b"NaN", b"".join(program.segments(self.output).values()))

    def test_all_orientations_give_the_same_boxes(self):
        upright = numpy.asarray(Image.open(program.picture("street.jpg")))[::2, ::2]
        for i, name in enumerate(TURNED):
            (self.input / name).write_bytes(hostile_pictures.png_with_orientation(upright, i + 1))
        recipe = self.write("boxes.yaml", "stages: [decode, preprocess, detect, encode]\n")
        self.run_ok(recipe, "--input", self.input, "--output", self.output, "--detector", program.package("yolox"), "-q")
        lines = by_path(self.output)
        first = lines[TURNED[0]]
        self.assertGreater(len(first["objects"]), 2)
        for name in TURNED:
            self.assertEqual({**lines[name], "path": ""}, {**first, "path": ""})

    def test_an_option_accepts_a_cut_jpeg(self):
        whole = hostile_pictures.JPEG_LARGE
        (self.input / "cut.jpg").write_bytes(whole[: len(whole) * 9 // 10])
        self.decode_only(OK, "--set", "decode.accept_truncated=0.8")
        self.assertEqual(program.report(self.output)["calls"]["decode_warnings"], 1)

    def test_a_picture_over_the_slab_is_reduced_and_keeps_its_size(self):
        grey = hostile_pictures.zeros_compressed(20000 * 2501)
        (self.input / "large.png").write_bytes(hostile_pictures.png(20000, 20000, 1, 0, grey))
        code, err, peak_mb = run_measured(self.recipe, "--input", self.input, "--output", self.output, "-q", "--set", "decode.max_megapixels=500")
        self.assertEqual((code, err), (OK, ""))
        (line,) = program.lines(self.output)
        self.assertEqual((line["width"], line["height"]), (20000, 20000))
        if not program.SANITIZED:
            self.assertLess(peak_mb, 600)  # 1,200 MB of RGB otherwise

    def test_a_file_over_the_limit_is_not_read(self):
        program.write_picture(self.input / "a.jpg", 300, 200)
        with open(self.input / "b.jpg", "wb") as file:
            file.truncate(3 << 30)
        code, err, peak_mb = run_measured(self.recipe, "--input", self.input, "--output", self.output, "-q")
        self.assertEqual(code, SOME_FAILED)
        self.assertRegex(err, "^millrace: b.jpg: too_large: the file has 3221225472 bytes; the limit is 1073741824\n$")
        if not program.SANITIZED:
            self.assertLess(peak_mb, 600)

    def run_in_min_memory(self, *more):
        """Peak memory in MB of a run over self.input, minus that of a run over one small picture.

        Both runs have memory for two slabs, the minimum.
        """
        program.write_picture(self.folder / "small" / "a.jpg", 300, 200)
        least = ("-q", "--set", "gate.memory=128M", *more)
        _, _, usual_mb = run_measured(self.recipe, "--input", self.folder / "small", "--output", self.folder / "small_out", *least)
        code, err, peak_mb = run_measured(self.recipe, "--input", self.input, "--output", self.output, *least)
        self.assertEqual((code, err), (OK, ""))
        self.check_books(self.output)
        return peak_mb - usual_mb

    def test_large_files_are_read_one_at_a_time(self):
        for path in program.write_pictures(self.input, 8, 300, 200).iterdir():
            os.truncate(path, 150 << 20)  # zeros after the end of the picture: a sparse file
        (self.input / "link.jpg").symlink_to("0000.jpg")
        more_mb = self.run_in_min_memory()
        self.assertEqual(len(program.lines(self.output)), 9)
        if not program.SANITIZED:
            self.assertLess(more_mb, 150 + 64)  # 8 x 150 without a bound

    def test_pictures_that_take_much_to_decode_are_decoded_one_at_a_time(self):
        file = hostile_pictures.black_interlaced_png(8000)  # 192 MB as RGB between its passes
        for i in range(4):
            (self.input / f"{i}.png").write_bytes(file)
        more_mb = self.run_in_min_memory("--set", "threads.workers=2", "--set", "gate.slab=12M")
        if not program.SANITIZED:
            self.assertLess(more_mb, 192 + 64)  # 2 x 192 without a bound


class Names(HostileCase):
    """N1 to N13: names of files, and entries of a folder that are not pictures."""

    # N1, N2, N3, N5, N6
    NAMES = ("a/x.jpg", "b/x.jpg", "x.jpg", "x.png", "new\nline.jpg", "tab\t.jpg", "quo\"te'.jpg", "com,ma.jpg", "%s%n.jpg", "-rf.jpg",
             "*.jpg", "[a].jpg", "back\\slash.jpg", " .jpg", "a;b|c&d$(e)`f`.jpg", "<b>.jpg", "=1+1.jpg", "caf\u00e9.jpg", "cafe\u0301.jpg",
             "\u202egpj.exe.jpg", "\x1b[31mred.jpg", "\U0001f600.jpg", "a.b.c.jpg", "UPPER.JPG", "l" * 251 + ".jpg")

    def test_every_name_is_in_its_line_and_has_its_own_side_file(self):
        for i, name in enumerate(self.NAMES):
            program.write_picture(self.input / name, 40 + i, 30, seed=i)
        names = [os.fsencode(name) for name in self.NAMES] + [b"\xff\xfe.jpg", b"\xff\xfd.jpg"]  # N4
        for i, name in enumerate(names[len(self.NAMES) :]):
            Path(self.folder / "t.jpg").write_bytes((self.input / "x.jpg").read_bytes())
            os.rename(self.folder / "t.jpg", os.path.join(os.fsencode(self.input), name))
        done = self.decode_only(OK, "--format", "overlay,coco")
        self.assertEqual(done.err, "")
        lines = program.lines(self.output)
        self.assertEqual({program.path_bytes(line) for line in lines}, set(names))
        widths = {program.path_bytes(line): line["width"] for line in lines}
        self.assertEqual([widths[os.fsencode(name)] for name in self.NAMES], [40 + i for i in range(len(self.NAMES))])
        overlays = [f for f in (self.output / "overlay").rglob("*") if f.is_file()]
        self.assertEqual(len(overlays), len(names))
        self.assertEqual(len(json.loads((self.output / "coco.json").read_text())["images"]), len(names))

    def test_messages_do_not_pass_on_escape_sequences_of_names(self):
        (self.input / "\x1b]0;owned\x07\n.jpg").write_bytes(b"")
        with open(os.fsencode(self.input) + b"/\xff.jpg", "wb"):
            pass
        done = self.decode_only(SOME_FAILED)
        # Messages come in the order of commits, and batches are committed as they finish.
        self.assertEqual(sorted(done.err.splitlines(keepends=True)), ["millrace: \\x1b]0;owned\\x07\\n.jpg: empty: the file has no bytes\n",
                                                                      "millrace: \\xff.jpg: empty: the file has no bytes\n"])
        self.assertNotIn("\x1b", done.out)
        self.assertEqual(sorted(program.path_bytes(e) for e in errors(self.output)), [b"\x1b]0;owned\x07\n.jpg", b"\xff.jpg"])

    def test_lists_may_be_nul_separated(self):
        names = ["new\nline.jpg", " lead.jpg", "plain.jpg"]
        for name in names:
            program.write_picture(self.input / name)
        listed = b"".join(os.fsencode(self.input / name) + b"\0" for name in names)
        self.run_ok(self.recipe, "--input", "-", "-0", "--output", self.output, "-q", stdin=listed)
        self.assertEqual([os.path.basename(line["path"]) for line in program.lines(self.output)], names)

    def test_links(self):  # N7
        outside = program.write_pictures(self.folder / "outside", 2)
        program.write_picture(self.input / "a.jpg")
        (self.input / "file_link.jpg").symlink_to(outside / "0000.jpg")
        (self.input / "dangling.jpg").symlink_to(self.folder / "nowhere.jpg")
        (self.input / "self.jpg").symlink_to("self.jpg")
        (self.input / "folder_link").symlink_to(outside)
        (self.input / "up").symlink_to("..")
        done = self.decode_only(SOME_FAILED)
        self.assertIn("dangling.jpg: vanished", done.err)
        self.assertEqual(list(by_path(self.output)), ["a.jpg", "dangling.jpg", "file_link.jpg"])
        self.assertEqual(by_path(self.output)["dangling.jpg"]["reason"], "vanished")
        self.assertEqual(self.skipped(), {"loop": 1, "folder_link": 2})
        (self.input / "up").unlink()
        (self.input / "round").symlink_to(".")
        self.output = self.folder / "followed"
        self.decode_only(SOME_FAILED, "--follow-dirs")
        self.assertEqual(list(by_path(self.output)), ["a.jpg", "dangling.jpg", "file_link.jpg", "folder_link/0000.jpg", "folder_link/0001.jpg"])
        self.assertEqual(self.skipped(), {"loop": 2})

    def make_irregular(self):
        os.mkfifo(self.input / "fifo.jpg")
        (self.input / "folder.jpg").mkdir()
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        folder = os.getcwd()
        os.chdir(self.input)  # a socket's path is short
        listener.bind("socket.jpg")
        os.chdir(folder)
        made = ["fifo.jpg", "socket.jpg"]
        try:
            os.mknod(self.input / "null.jpg", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            made.append("null.jpg")
        except PermissionError:
            pass
        return made

    def test_pipes_sockets_and_devices_are_passed_over(self):  # N8
        program.write_picture(self.input / "a.jpg")
        made = self.make_irregular()
        self.decode_only(OK)
        self.assertEqual(list(by_path(self.output)), ["a.jpg"])
        self.assertEqual(self.skipped(), {"not_regular": len(made)})

    def test_pipes_sockets_and_devices_named_in_a_list_fail(self):  # N8: nothing hangs
        program.write_picture(self.input / "a.jpg")
        made = self.make_irregular() + ["folder.jpg"]
        listed = self.write("list.txt", "".join(f"{self.input / name}\n" for name in ["a.jpg", *made]))
        done = self.run_ok(self.recipe, "--input", listed, "--output", self.output, "-q", code=SOME_FAILED)
        self.check_books(self.output)
        self.assertEqual([line.get("reason") for line in program.lines(self.output)], [None] + ["not_regular"] * len(made))
        self.assertEqual(len(done.err.splitlines()), len(made))

    def run_without_rights(self, *arguments):
        # Root without the right to ignore file modes is like an ordinary user who owns the files.
        without = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
        command = [*(without if os.geteuid() == 0 else []), program.PROGRAM, "run", self.recipe, "--input", self.input, "--output", self.output, "-q", *arguments]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)

    def test_files_and_folders_without_the_right_to_read(self):  # N9
        for name in ("a.jpg", "closed.jpg", "closed/b.jpg", "open/c.jpg"):
            program.write_picture(self.input / name)
        (self.input / "closed.jpg").chmod(0)
        (self.input / "closed").chmod(0)
        self.addCleanup((self.input / "closed").chmod, 0o700)
        done = self.run_without_rights()
        self.assertEqual(done.returncode, SOME_FAILED)
        said = done.stderr.splitlines()
        self.assertEqual(said[0], "millrace: closed.jpg: permission: this user may not read the file")
        self.assertEqual(len(said), 2)
        self.assertIn("1 folder could not be listed (closed)", said[1])
        self.check_books(self.output)
        self.assertEqual({path: line.get("reason") for path, line in by_path(self.output).items()},
                         {"a.jpg": None, "closed.jpg": "permission", "open/c.jpg": None})
        self.assertEqual(self.skipped(), {"unreadable_folder": 1})

    def test_a_folder_that_cannot_be_listed_sets_the_exit_code(self):  # N9
        program.write_picture(self.input / "a.jpg")
        program.write_picture(self.input / "closed/b.jpg")
        (self.input / "closed").chmod(0)
        self.addCleanup((self.input / "closed").chmod, 0o700)
        done = self.run_without_rights()
        self.assertEqual(done.returncode, SOME_FAILED)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("(closed)", done.stderr)
        self.assertEqual(program.report(self.output)["items"]["ok"], 1)
        dry = self.run_without_rights("--dry-run")
        self.assertEqual(dry.returncode, SOME_FAILED)
        self.assertEqual(dry.stderr.strip() + ", then run again with --add-new", done.stderr.strip())
        told = program.millrace("status", self.output)
        self.assertIn("unlisted  1 folder could not be listed (closed) and is not in the plan", told.out)
        (self.input / "closed").chmod(0o700)
        self.run_ok(self.recipe, "--input", self.input, "--output", self.output, "--add-new")
        self.assertNotIn("unlisted", program.millrace("status", self.output).out)

    def test_files_of_the_system_are_passed_over_by_rule(self):  # N10
        for name in ("a.jpg", ".hidden.jpg", "._a.jpg", ".git/b.jpg", "@eaDir/c.jpg", "__MACOSX/d.jpg"):
            program.write_picture(self.input / name)
        for name in (".DS_Store", "Thumbs.db", "desktop.ini", "readme.txt", "film.mp4", "noext"):
            (self.input / name).write_bytes(b"x")
        self.decode_only(OK)
        self.assertEqual(list(by_path(self.output)), ["a.jpg"])
        self.assertEqual(self.skipped(), {"hidden": 4, "system_file": 4, "other_extension": 2})
        self.assertEqual(program.report(self.output)["input"]["videos_not_read"], 1)
        dry = self.run_ok(self.recipe, "--input", self.input, "--dry-run")
        self.assertRegex(dry.out, "^1 picture, ")
        for part in ("4 hidden", "4 system files", "2 without the extension of a picture", "1 video (not read yet"):
            self.assertIn(part, dry.out)

    def test_an_input_without_pictures_is_a_usage_error(self):  # N13
        done = self.run_ok(self.recipe, "--input", self.input, "--output", self.output, "-q", code=USAGE)
        self.assertRegex(done.err, "^millrace: .*in.*\n$")
        (self.input / "notes.txt").write_text("x")
        done = self.run_ok(self.recipe, "--input", self.input / "*.jpg", "--output", self.output, "-q", code=USAGE)
        done = self.run_ok(self.recipe, "--input", self.input / "nowhere", "--output", self.output, "-q", code=USAGE)
        self.assertIn("nowhere", done.err)


if __name__ == "__main__":
    program.main()
