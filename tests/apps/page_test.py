"""`millrace report` and report.html, which a real browser opens."""

import csv
import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import program
from page_case import PageCase, check_shown
from program import Case, millrace, report, write_picture, write_pictures


def attempt(output):
    """The folder of the newest attempt."""
    return max((Path(output) / "runs").iterdir(), key=lambda f: (f.name.rsplit("-", 1)[0], int(f.name.rsplit("-", 1)[1])))


class ReportCommand(Case):
    """The command, without a browser."""

    def run_decoding(self, *arguments, pictures=3, code=program.OK):
        self.write("decode.yaml", program.DECODE_ONLY)
        if not (self.folder / "pictures").exists():
            write_pictures(self.folder / "pictures", pictures)
        return self.run_ok("--input", self.folder / "pictures", "--output", self.folder / "out", self.folder / "decode.yaml", *arguments, code=code)

    def test_it_prints_what_the_run_printed(self):
        printed = self.run_decoding("--format", "overlay").out
        again = millrace("report", self.folder / "out")
        self.assertEqual(again.code, program.OK, again)
        page = f"page     {attempt(self.folder / 'out')}/report.html\n"
        self.assertTrue(printed.endswith(page), printed)
        self.assertEqual(again.out + page, printed)
        self.assertEqual(again.err, "")

    def test_it_names_another_attempt_and_prints_json(self):
        self.run_decoding()
        first = attempt(self.folder / "out").name
        self.run_decoding()
        newest = attempt(self.folder / "out").name
        self.assertNotEqual(first, newest)
        self.assertIn("nothing was left to do", millrace("report", self.folder / "out").out)
        self.assertNotIn("nothing was left to do", millrace("report", self.folder / "out", "--run", first).out)
        shown = millrace("report", self.folder / "out", "--json", "--run", first)
        self.assertEqual(json.loads(shown.out), json.loads((self.folder / "out/runs" / first / "report.json").read_text()))

    def test_it_needs_only_the_folder_of_the_attempt(self):
        self.run_decoding()
        shutil.copytree(self.folder / "out/runs", self.folder / "copy/runs")
        done = millrace("report", "copy", "--html", "page.html", cwd=self.folder)
        self.assertEqual(done.code, program.OK, done)
        self.assertTrue(done.out.endswith("page     page.html\n"), done)
        again = attempt(self.folder / "out") / "report.html"
        data = [re.search(r'id="data">(.*?)</script>', file.read_text())[1] for file in (self.folder / "page.html", again)]
        self.assertEqual(data[0], data[1])

    def test_what_it_refuses(self):
        self.run_decoding()
        out, folder = self.folder / "out", attempt(self.folder / "out")
        good = (folder / "report.json").read_text()
        for arguments, code, message in [
            ((), program.USAGE, "needs one output folder"),
            ((self.folder / "pictures",), program.USAGE, "has no attempts"),
            ((out, "--run", "yesterday"), program.USAGE, "is not an attempt"),
            ((out, "--run"), program.USAGE, "needs the name"),
            ((out, "--htm"), program.USAGE, "did you mean '--html'?"),
            ((out, "--html", self.folder / "none/page.html"), program.STORAGE, "none"),
            ((out, "--html", self.folder), program.STORAGE, str(self.folder)),
        ]:
            with self.subTest(arguments=arguments):
                done = millrace("report", *arguments)
                self.assertEqual(done.code, code, done)
                self.assertIn(message, done.err)
                self.assertEqual(len(done.err.splitlines()), 1, done)
        for text, code, message in [
            (good[: len(good) // 2], program.MISMATCH, "is damaged"),
            (json.dumps({"schema": 1, "run": "x"}), program.MISMATCH, "is damaged"),
            (good.replace('"schema": 1', '"schema": 2'), program.MISMATCH, "schema 2"),
            (None, program.USAGE, "was killed"),
        ]:
            with self.subTest(text=text and text[:20]):
                (folder / "report.json").unlink()
                if text is not None:
                    (folder / "report.json").write_text(text)
                done = millrace("report", out)
                self.assertEqual(done.code, code, done)
                self.assertIn(message, done.err)
                if text is None:
                    (folder / "report.json").touch()

    def test_a_page_that_cannot_be_written_does_not_fail_the_run(self):
        self.write("decode.yaml", program.DECODE_ONLY)
        write_pictures(self.folder / "pictures", 3)
        arguments = ["run", "--input", self.folder / "pictures", "--output", self.folder / "out", self.folder / "decode.yaml"]
        # No file may have more than 64 KiB: only the page is larger.
        done = subprocess.run(["bash", "-c", 'ulimit -f 64; exec "$@"', "bash", program.PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, program.OK, done)
        self.assertIn("report.html was not written", done.stderr)
        self.assertNotIn("page  ", done.stdout)
        self.assertEqual({f.name for f in attempt(self.folder / "out").iterdir()}, {"run.json", "report.json", "errors.jsonl", "resources.csv"})


class Browser(PageCase):
    """Pages of reports."""

    def sample(self, name="sample", rows=120, gpus=0, edit=lambda figures: None):
        """An output folder with the report of a run of the full pipeline, made by hand. It returns the page and the figures."""
        figures = json.loads((program.ROOT / "tests/apps/sample_report.json").read_text())
        edit(figures)
        folder = self.folder / name / "runs" / figures["run"]
        folder.mkdir(parents=True)
        (folder / "report.json").write_text(json.dumps(figures))
        (folder / "run.json").write_text(json.dumps({"tool": "millrace 0.1.0", "started": figures["started"], "config":
            'stages: ["decode", "encode"]                                   # default\ninput:\n  paths: ["pictures"]                                         # command line, --input\n'
            'segment:\n  box_batch: 32                                               # configs/a.yaml:12\n  pack: yes                                                   # default\n'}))
        queues = ["read", "bytes", "decode", "batch", "lane", "encode", "commit"]
        with (folder / "resources.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["seconds", "cores_busy", "other_cores", "stolen_cores", "throttled_cores", "cpu_stall", "memory_stall", "io_stall", "resident_bytes",
                          "disk_read_bytes_per_s", "disk_written_bytes_per_s", "cpu_mhz", "temperature_c", "pictures", "in_flight", *[f"queue_{q}" for q in queues],
                          *[f"gpu{i}_{n}" for i in range(gpus) for n in ("utilisation_percent", "memory_used_bytes", "sm_mhz", "memory_mhz", "power_w", "temperature_c")]])
            for i in range(1, rows + 1):
                wave = 0.5 + 0.5 * math.sin(i / 9)
                started = i > 3
                out.writerow([f"{i + 0.0007 * (i % 3):.6f}", f"{1.2 + 0.6 * wave:.6f}", f"{0.2 * (1 - wave):.6f}", "0.010000", "", f"{0.4 * wave:.6f}", "0.000000", f"{0.02 * wave:.6f}",
                              4_000_000_00 + 1_000_000 * min(i, 60), f"{2e6 * wave:.6f}", f"{1e6:.6f}", "", f"{60 + 5 * wave:.6f}",
                              int(2.98 * (i - 3)) if started else "", 12 + i % 4 if started else "",
                              *[(i * (q + 3) // 2 % (q + 2) if started else "") for q in range(len(queues))],
                              *[v for _ in range(gpus) for v in (f"{90 * wave:.6f}", 2 << 30, 1700, 1500, f"{200 * wave:.6f}", 65)]])
        (folder / "errors.jsonl").write_text("")
        return folder, figures

    def make(self, folder):
        done = millrace("report", folder.parents[1], "--html")
        self.assertEqual(done.code, program.OK, done)
        return folder / "report.html"

    def test_a_run_of_the_program(self):
        names = [b"<img src=x onerror=alert(1)>.jpg", b"<script>alert(1)<", b"quote\"'`.jpg", b"control\x01\n\x1b[31m.jpg", b"\xff\xfe.jpg", "\u202egpj.exe.jpg".encode(),
                 b"'; alert(1); '.jpg", b"&lt;b&gt;.jpg"]
        pictures = self.folder / "pictures"
        write_pictures(pictures, 20)
        for name in names:
            Path(os.fsdecode(os.fsencode(pictures) + b"/" + name.removesuffix(b".jpg") + b".jpg")).write_bytes(b"no picture")
        (pictures / "x<").mkdir()
        (pictures / "x<" / "script><script>alert(2)<").mkdir()
        (pictures / "x<" / "script><script>alert(2)<" / "script>.jpg").write_bytes(b"")
        self.write("decode.yaml", program.DECODE_ONLY)
        self.run_ok("--input", pictures, "--output", self.folder / "out", self.folder / "decode.yaml", code=program.SOME_FAILED)
        figures = report(self.folder / "out")
        page = self.open(attempt(self.folder / "out") / "report.html")
        keys = self.check_numbers(page, figures)
        self.assertIn("items.ok", keys)
        self.assertIn("items.failed.not_an_image", keys)
        self.assertEqual(page.text_content("[data-sum]"), str(len(names) + 1))
        shown = page.eval_on_selector_all("[data-error] code", "all => all.map(e => e.textContent)")
        self.assertEqual(len(shown), len(names) + 1)
        for part in ["<img src=x onerror=alert(1)>.jpg", "x</script><script>alert(2)</script>.jpg", "quote\"'`.jpg", "control\\x01\\n\\x1b[31m.jpg", "\\xff\\xfe.jpg",
                     "\\u202egpj.exe.jpg", "&lt;b&gt;.jpg"]:
            self.assertTrue(any(part in path for path in shown), (part, shown))
        self.check_page(page)
        self.check_layout(attempt(self.folder / "out") / "report.html")

    def test_a_run_of_one_picture(self):
        write_picture(self.folder / "pictures/a.jpg")
        self.write("decode.yaml", program.DECODE_ONLY)
        self.run_ok("--input", self.folder / "pictures", "--output", self.folder / "out", self.folder / "decode.yaml", "--quiet")
        page = self.open(attempt(self.folder / "out") / "report.html")
        sentence = report(self.folder / "out")["verdict"]["sentence"]  # usually "Too short to judge: ..."
        self.assertTrue(sentence.replace("`", "").startswith(page.text_content("h1")), sentence)
        self.check_numbers(page, report(self.folder / "out"))
        self.check_page(page)
        self.run_ok("--input", self.folder / "pictures", "--output", self.folder / "out", self.folder / "decode.yaml")
        page = self.open(attempt(self.folder / "out") / "report.html")
        self.assertEqual(page.text_content("h1"), "Nothing was left to do")
        self.check_numbers(page, report(self.folder / "out"))
        self.check_page(page)

    def test_a_run_of_the_full_pipeline(self):
        folder, figures = self.sample()
        file = self.make(folder)
        page = self.open(file)
        keys = self.check_numbers(page, figures)
        for key in ["what_if.changes.0.pictures_per_s", "run_window.resources.2.parts.2.p95_ms", "run_window.pictures_per_s", "verdict.other_cores", "run_window.fill_s"]:
            self.assertIn(key, keys)
        self.assertEqual(page.text_content("h1"), "Other programs hold the run back")
        gain = figures["what_if"]["changes"][0]["pictures_per_s"] / figures["what_if"]["pictures_per_s"] - 1
        check_shown(self, page.text_content("[data-gain='what_if.changes.0']"), gain, "gain")
        titles = page.eval_on_selector_all("figcaption h3", "all => all.map(e => e.textContent)")
        self.assertEqual(titles, ["Rate", "Pictures in the pipeline", "Queues", "Cores", "Time in which some thread waited", "Memory of this program", "Disks", "Temperature"])
        self.assertIn("Rate in pictures/s, from 0:01 to 2:00. finished pictures: mean 2.9", page.get_attribute(".chart", "aria-label"))
        self.assertEqual(page.eval_on_selector_all("section .stack code", "all => all.map(e => e.textContent)")[-4:], ["input.paths", '["pictures"]', "segment.box_batch", "32"])
        self.check_layout(file)

    def test_charts_zoom_together_by_mouse(self):
        folder, _ = self.sample()
        page = self.open(self.make(folder))
        ranges = "[...document.querySelectorAll('figure')].map(f => f.graph.xAxisRange().map(Math.round))"
        whole = page.evaluate(ranges)
        chart = page.locator(".chart").nth(3)
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        self.assertRegex(page.locator(".legend").nth(3).locator("li").first.text_content(), r"^this program: 1\.\d+ at 0:5\d$")
        page.mouse.down()
        page.mouse.move(x + box["width"] / 4, y, steps=5)
        page.mouse.up()
        zoomed = page.evaluate(ranges)
        self.assertEqual(zoomed, [zoomed[0]] * 8)
        self.assertGreater(zoomed[0][0], 40)
        self.assertLess(zoomed[0][1], 100)
        page.mouse.dblclick(x, y)
        self.assertEqual(page.evaluate(ranges), whole)
        page.mouse.move(1, 1)
        self.assertIn("mean", page.locator(".legend").nth(3).locator("li").first.text_content())
        self.check_page(page)

    def test_charts_zoom_together_by_keyboard(self):
        folder, _ = self.sample()
        page = self.open(self.make(folder))
        ranges = "[...document.querySelectorAll('figure')].map(f => f.graph.xAxisRange().map(Math.round))"
        whole = page.evaluate(ranges)
        self.assertEqual(len(whole), 8)
        page.get_by_role("button", name="Zoom in").focus()
        page.keyboard.press("Enter")
        self.assertEqual(page.evaluate(ranges), [[31, 90]] * 8)
        self.assertTrue(page.get_by_text("The charts show 0:31 to 1:30.").is_visible())
        page.get_by_role("button", name="Later").click()
        self.assertEqual(page.evaluate(ranges), [[61, 120]] * 8)
        page.get_by_role("button", name="Whole time").click()
        self.assertEqual(page.evaluate(ranges), whole)
        page.get_by_text("Table of Rate").click()
        rows = page.locator("figure").first.locator("tbody tr")
        rows.last.wait_for()  # the browser tells the page of an open table a moment later
        self.assertEqual(rows.count(), 120)
        self.assertEqual(page.locator("figure").first.locator("tbody td").first.text_content(), "not known")
        self.check_page(page)

    def test_what_the_system_does_not_tell_is_not_known(self):
        def edit(figures):
            del figures["what_if"]
            figures["verdict"]["other_cores"] = None
            figures["run_window"]["steady_pictures_per_s"] = None
            for resource in figures["run_window"]["resources"]:
                for row in [resource, *resource.get("parts", [])]:
                    for key in "on_core", "no_core", "core_s":
                        row[key] = None
            figures["gpus"] = [{"bus": "0000:01:00.0", "mean_utilisation": 0.5, "peak_memory_bytes": None, "mean_sm_mhz": None, "mean_memory_mhz": None, "mean_power_w": None,
                                "peak_temperature_c": None}]

        folder, figures = self.sample(edit=edit)
        (folder / "resources.csv").unlink()
        file = self.make(folder)
        page = self.open(file)
        self.check_numbers(page, figures)
        self.assertEqual(page.locator("[data-unknown='verdict.other_cores']").text_content(), "not known")
        self.assertEqual(page.locator("[data-unknown$='no_core']").first.text_content(), "not known")
        self.assertEqual(page.locator("[data-unknown='gpus.0.mean_power_w']").text_content(), "not known")
        self.assertEqual(page.locator("[data-key^='run_window.steady']").count(), 0)
        self.assertEqual(page.locator("figure").count(), 0)
        self.assertTrue(page.get_by_text("no file resources.csv").is_visible())
        self.check_layout(file)

    def test_hostile_text_in_the_report_stays_text(self):
        hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \" ' \u2028 \u0001"

        def edit(figures):
            figures["notes"] = [hostile]
            figures["verdict"]["sentence"] = f"`a` holds the run back: {hostile}"
            figures["run_window"]["resources"][0]["name"] = hostile
            figures["what_if"]["changes"][0]["label"] = hostile
            figures["reduced"] = {"x": {"file": hostile, "summary": [hostile]}}

        folder, figures = self.sample(edit=edit)
        with (folder / "resources.csv").open() as file:
            head, rest = file.read().split("\n", 1)
        (folder / "resources.csv").write_text(head.replace("queue_read", "queue_<img src=x onerror=alert(3)>") + "\n" + rest)
        page = self.open(self.make(folder))
        self.check_numbers(page, figures)
        self.assertEqual(page.locator("img").count(), 0)
        self.assertEqual(page.locator("ul.notes li").first.text_content(), hostile)
        self.check_page(page)

    def test_a_run_of_ten_million_pictures(self):
        def edit(figures):
            figures["items"].update(planned=10_000_000, ok=9_900_000, failed={"truncated": 100_000}, failed_in_this_attempt=100_000)
            figures["run_window"].update(committed=10_000_000, wall_s=100_000.0, pictures_per_s=100.0)

        folder, figures = self.sample(rows=100_000, gpus=8, edit=edit)
        with (folder / "errors.jsonl").open("w") as file:
            for i in range(100_000):
                file.write(json.dumps({"id": i, "path": f"{'long/' * 20}{i}.jpg", "stage": "decode", "reason": "truncated", "detail": "the data end early " * 5}) + "\n")
        file = self.make(folder)
        self.assertLess(file.stat().st_size, 3_000_000)
        page = self.open(file)
        self.check_numbers(page, figures)
        self.assertEqual(page.locator("[data-error]").count(), 200)
        self.assertTrue(page.get_by_text("The first 200 of the 100,000 pictures").count() == 1)
        self.assertEqual(page.evaluate("document.querySelector('figure').graph.numRows()"), json.loads(page.text_content("#data"))["series"]["time"].__len__())
        self.assertIn("Power of the GPUs", page.eval_on_selector_all("figcaption h3", "all => all.map(e => e.textContent)"))
        self.check_page(page)

    def test_without_scripts_the_page_is_the_text(self):
        folder, _ = self.sample()
        page = self.open(self.make(folder), java_script_enabled=False)
        self.assertIn("Other programs hold the run back", page.locator("pre").text_content())


if __name__ == "__main__":
    program.main()
