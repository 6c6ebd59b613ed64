"""Sections of report.html that not every run has: thumbnails of failed pictures, views, and the timeline of the lanes."""

import base64
import io
import json
import os
import random
import re
import shutil

import program
from page_case import PageCase, attempt
from PIL import Image, ImageChops, ImageStat
from program import report, write_picture


class Thumbnails(PageCase):
    def test_failed_pictures_have_thumbnails(self):
        pictures = self.folder / "pictures"
        for i in range(10):  # undamaged, but larger than the run allows
            write_picture(pictures / f"a{i}.jpg", 400 + 10 * i, 300, seed=i)
        cut = write_picture(pictures / "b cut.png", 640, 480)
        cut.write_bytes(cut.read_bytes()[: cut.stat().st_size * 2 // 3])
        (pictures / "c.jpg").write_bytes(b"no picture")
        for i in range(20):
            write_picture(pictures / f"d{i}.jpg", 400, 300, seed=i)
        os.link(pictures / "a0.jpg", os.fsencode(pictures) + b"/\xff<b>.jpg")
        self.write("decode.yaml", program.DECODE_ONLY)
        self.run_ok("--input", pictures, "--output", self.folder / "out", self.folder / "decode.yaml", "--set", "decode.max_megapixels=0.1", code=program.SOME_FAILED)
        file = attempt(self.folder / "out") / "report.html"
        page = self.open(file)
        page.get_by_text("The next 21 pictures").click()
        rows = page.eval_on_selector_all("[data-error]", """all => all.map(row => [row.querySelector("code").textContent, row.querySelector(".thumbnail").textContent,
          ...[...row.querySelectorAll("img")].map(img => [img.src, img.alt, img.naturalWidth, img.naturalHeight])])""")
        self.assertEqual(len(rows), 33)
        self.assertEqual(sum(len(row) == 3 for row in rows), 23, "24 are tried, and one of them is no picture")
        shown = {row[0]: row[2] for row in rows if len(row) == 3}
        for name in [*(f"a{i}.jpg" for i in range(10)), "b cut.png"]:
            source, alt, width, height = shown[name]
            self.assertEqual(alt, f"thumbnail of {name}")
            small = Image.open(io.BytesIO(base64.b64decode(source.removeprefix("data:image/jpeg;base64,"))))
            self.assertEqual(small.size, (width, height))
            self.assertLessEqual(width * height, 160 * 120)
            if name.startswith("a"):
                whole = Image.open(pictures / name).resize(small.size, Image.Resampling.BOX)
                self.assertLess(ImageStat.Stat(ImageChops.difference(small, whole)).mean[0], 6, name)
        texts = {row[0]: row[1] for row in rows}
        self.assertRegex(texts["c.jpg"], "cannot be shown: .*plain text")
        self.assertEqual(texts["d9.jpg"], "-")
        self.check_numbers(page, report(self.folder / "out"))
        self.check_page(page)
        self.check_layout(file)

        # The page shows the files as they are when it is made.
        (pictures / "a0.jpg").unlink()
        os.mkfifo(pictures / "a0.jpg")
        (pictures / "a1.jpg").unlink()
        page = self.open(self.make(attempt(self.folder / "out")))
        texts = dict(page.eval_on_selector_all(
            "[data-error]", """all => all.map(row => [row.querySelector("code").textContent, row.querySelector(".thumbnail").textContent])"""))
        self.assertRegex(texts["a0.jpg"], "^cannot be shown: ")  # found by name: the rows have the order in which the pictures failed
        self.assertRegex(texts["a1.jpg"], "^cannot be shown: ")
        self.assertEqual(texts["a2.jpg"], "", "it is shown")
        self.check_page(page)
        # A copy without the plan does not know where the pictures are.
        shutil.copytree(self.folder / "out/runs", self.folder / "copy/runs")
        page = self.open(self.make(attempt(self.folder / "copy")))
        self.assertEqual(page.locator("[data-error]").count(), 33)
        self.assertEqual(page.locator(".thumbnail").count(), 0)
        self.check_page(page)


class Lanes(PageCase):
    """Runs with lanes. The engine is simulated, so they need no LibTorch."""

    pictures = {"front": 9, "left": 4, "right": 6}

    def run_views(self, views, *arguments, code=program.OK):
        table = {"name": "none", "upload_gb_per_s": 1000, "download_gb_per_s": 1000, "letterbox_ms": 0, "find_boxes_ms": 0, "outline_ms": 0,
                 **{method: {"call_ms": 2, "each_ms": 1} for method in ("forward", "encode", "decode")}}
        for view in views:
            for i in range(self.pictures[view]):
                write_picture(self.folder / f"in/{view}/{i}.jpg", 320, 240, seed=i)
        builtin = program.ROOT / "models/builtin"
        recipe = "stages: [decode, preprocess, detect, encode]\nviews:\n"
        for view in views:
            recipe += f'  - {{name: {view}, match: "{view}/**", detector: "{builtin}/{view}.pkg"}}\n'
        return self.run_ok("--input", self.folder / "in", "--output", self.folder / "out", self.write("views.yaml", recipe), "--engine",
                           f"simulated:{self.write('table.yaml', json.dumps(table))}", "--set", "batch.size=2", "--set", "threads.lanes=2", *arguments, code=code)

    def titles(self, page):
        return page.eval_on_selector_all("h2", "all => all.map(e => e.textContent)")

    def test_a_run_with_several_views(self):
        (self.folder / "in/left").mkdir(parents=True)
        (self.folder / "in/left/broken.jpg").write_bytes(b"no picture")
        self.run_views(self.pictures, code=program.SOME_FAILED)
        figures = report(self.folder / "out")
        views = figures["views"]
        self.assertEqual([(view["name"], view["pictures"], view["failed"]) for view in views], [("front", 9, 0), ("left", 5, 1), ("right", 6, 0)])
        self.assertEqual(sum(view["objects"] for view in views), figures["items"]["objects"])
        self.assertAlmostEqual(sum(view["share"] for view in views), 1)
        # A stage did what the views did in it.
        stages = {row["name"]: row for resource in figures["run_window"]["resources"] if not resource["name"].startswith("GPU") for row in resource.get("parts", [resource])}
        self.assertEqual({stage["name"] for stage in views[0]["stages"]}, {"read", "decode", "preprocess", "detect", "encode", "commit"})
        for name, row in stages.items():
            of_views = [stage for view in views for stage in view["stages"] if stage["name"] == name]
            for key in "items", "failed", "busy_s":
                self.assertAlmostEqual(sum(stage[key] for stage in of_views), row[key], places=6, msg=f"{name} {key}")
        self.assertEqual([stage["items"] for view in views for stage in view["stages"] if stage["name"] == "detect"], [5, 2, 3])
        for view in views:
            self.assertAlmostEqual(sum(stage["busy_s"] for stage in view["stages"]), view["busy_s"])
        file = attempt(self.folder / "out") / "report.html"
        page = self.open(file)
        self.assertIn("Views", self.titles(page))
        keys = self.check_numbers(page, figures)
        for key in "views.1.failed", "views.2.share", "views.0.stages.0.mean_ms":
            self.assertIn(key, keys)
        self.check_page(page)
        self.check_layout(file)

    def test_a_view_without_pictures_has_one_row(self):
        self.pictures = {**self.pictures, "right": 0}
        self.run_views(self.pictures)
        page = self.open(attempt(self.folder / "out") / "report.html")
        keys = self.check_numbers(page, report(self.folder / "out"))
        self.assertIn("views.1.stages.0.items", keys)
        self.assertEqual([key for key in keys if key.startswith("views.2.stages")], [])
        self.assertIn("views.2.pictures", keys)

    def test_a_run_with_one_view(self):
        self.run_views(["left"])
        self.assertEqual(report(self.folder / "out")["views"], [])
        page = self.open(attempt(self.folder / "out") / "report.html")
        self.assertNotIn("Views", self.titles(page))
        self.assertIn("What the lanes did", self.titles(page))
        self.check_page(page)

    def test_views_and_timeline_of_a_run_that_measures_nothing(self):
        self.run_views(self.pictures, "--set", "measure.enabled=no")
        figures = report(self.folder / "out")
        self.assertEqual([(view["pictures"], view["stages"], view["share"]) for view in figures["views"]], [(9, [], None), (4, [], None), (6, [], None)])
        self.assertFalse((attempt(self.folder / "out") / "timeline.json").exists())
        page = self.open(attempt(self.folder / "out") / "report.html")
        self.assertNotIn("What the lanes did", self.titles(page))
        self.check_numbers(page, figures)
        self.check_page(page)

    def test_the_timeline_is_that_of_the_report(self):
        self.run_views(self.pictures)
        figures, folder = report(self.folder / "out"), attempt(self.folder / "out")
        timeline = json.loads((folder / "timeline.json").read_text())
        (lane,) = [resource for resource in figures["run_window"]["resources"] if resource["name"] == "lane"]
        self.assertEqual(timeline["stages"], [part["name"] for part in lane["parts"]])
        self.assertEqual((timeline["lanes"], timeline["views"], timeline["cut"]), (lane["concurrency"], ["front", "left", "right"], None))
        self.assertEqual(len(timeline["batches"]), lane["items"])
        self.assertEqual(sum(batch[2] for batch in timeline["batches"]), 19)
        # The time between two stages belongs to the second one. It is part of the busy time of the lane.
        for i, part in enumerate(lane["parts"]):
            self.assertGreaterEqual(sum(batch[5 + i] for batch in timeline["batches"]) / 1e3, part["busy_s"] - 1e-4, part["name"])
        self.assertLessEqual(sum(sum(batch[5:]) for batch in timeline["batches"]) / 1e3, lane["busy_s"] + 1e-4)
        self.assertAlmostEqual(timeline["ended_s"] - timeline["begun_s"], figures["run_window"]["wall_s"], delta=1e-5)
        for _, _, _, _, begun, *ms in timeline["batches"]:
            self.assertGreaterEqual(begun, timeline["begun_s"])
            self.assertLessEqual(begun + sum(ms) / 1e3, timeline["ended_s"] + 1e-3)
        page = self.open(folder / "report.html")
        page.get_by_text("Table of the batches of the lanes").click()
        rows = page.locator(".timeline tbody tr")
        rows.last.wait_for()
        shown = rows.evaluate_all("all => all.map(row => [...row.children].map(cell => cell.textContent))")
        expected = [[str(lane), str(batch), str(pictures), timeline["views"][view], f"{begun:.3f} s", *(f"{part:.2f}" for part in ms)]
                    for lane, batch, pictures, view, begun, *ms in sorted(timeline["batches"], key=lambda batch: batch[4])]
        self.assertEqual(len(shown), len(expected))
        for row, wanted in zip(shown, expected, strict=True):
            self.assertEqual(row[:4], wanted[:4])
            for text, number in zip(row[4:], wanted[4:], strict=True):  # halves are rounded in different ways
                self.assertAlmostEqual(float(text.removesuffix(" s")), float(number.removesuffix(" s")), delta=0.0101)
        self.check_page(page)

    def long_run(self, lanes=3, batches=2048, edit=lambda timeline: None):
        """The sample with a timeline from which 5000 seconds are cut."""
        rng = random.Random(5)
        free, rows = [10.0 + lane / 10 for lane in range(lanes)], []
        for i in range(batches):
            if i == batches // 2:
                cut = {"from_s": max(free), "to_s": max(free) + 5000, "batches": 1_234_567}
                free = [cut["to_s"] + lane / 10 for lane in range(lanes)]
            lane = min(range(lanes), key=free.__getitem__)
            ms = [round(rng.uniform(5, 10 * (stage + 1)), 3) for stage in range(4)]
            rows.append([lane, i, 1, 0, round(free[lane], 6), *ms])
            free[lane] += sum(ms) / 1e3 + (0.1 if i % 7 == 0 else 0)
        timeline = {"version": 1, "lanes": lanes, "stages": ["preprocess", "detect", "segment", "postprocess"], "views": ["default"], "begun_s": 9.0,
                    "ended_s": round(max(free), 6), "cut": cut, "batches": rows}
        edit(timeline)
        folder, figures = self.sample()
        (folder / "timeline.json").write_text(json.dumps(timeline))
        return folder, figures, timeline

    def window(self, page):
        return page.evaluate("document.querySelector('.timeline').graph.xAxisRange()")

    def test_the_timeline_of_a_long_run_zooms_by_keyboard(self):
        folder, figures, timeline = self.long_run()
        file = self.make(folder)
        page = self.open(file)
        self.check_numbers(page, figures)
        whole = self.window(page)
        # The time that is cut takes a small part of the chart.
        self.assertLess(whole[1] - whole[0], 1.1 * (timeline["ended_s"] - 9 - 5000))
        self.assertTrue(page.get_by_text("with 1,234,567 batches, which are not recorded").is_visible())
        tools = page.get_by_role("group", name="Part of the time that the timeline shows")
        tools.get_by_role("button", name="Zoom in").focus()
        page.keyboard.press("Enter")
        first = self.window(page)
        self.assertAlmostEqual(first[1] - first[0], (whole[1] - whole[0]) / 2)
        said = tools.locator("span").text_content()
        self.assertRegex(said, r"^The timeline shows \d:\d\d:\d\d\.\d{3} to \d:\d\d:\d\d\.\d{3}\.$")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        later = self.window(page)
        self.assertGreater(later[0], first[0])
        self.assertNotEqual(tools.locator("span").text_content(), said)
        # The other charts keep their part of the time.
        self.assertTrue(page.get_by_text("The charts show the whole time.").is_visible())
        for _ in range(30):
            tools.get_by_role("button", name="Zoom in").click()
        self.assertAlmostEqual(self.window(page)[1] - self.window(page)[0], (whole[1] - whole[0]) / 20000)
        tools.get_by_role("button", name="Whole time").click()
        self.assertEqual(self.window(page), whole)
        self.assertEqual(tools.locator("span").text_content(), "The timeline shows the whole time.")
        self.check_page(page)
        self.check_layout(file)

    def test_the_timeline_zooms_by_mouse_and_names_the_batch_below_the_pointer(self):
        folder, _, timeline = self.long_run()
        page = self.open(self.make(folder))
        chart = page.locator(".timeline .chart")
        chart.scroll_into_view_if_needed()
        whole = self.window(page)
        lane, batch, _, _, begun, *ms = timeline["batches"][40]
        place = """([time, lane]) => {
          const graph = document.querySelector(".timeline").graph, box = graph.graphDiv.getBoundingClientRect(), area = graph.getArea();
          return [box.x + graph.toDomXCoord(time), box.y + area.y + (lane + 0.5) * area.h / 3];
        }"""
        x, y = page.evaluate(place, [begun - 0.5, lane])
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(*page.evaluate(place, [begun + 0.5, lane]), steps=5)
        page.mouse.up()
        zoomed = self.window(page)
        self.assertAlmostEqual(zoomed[1] - zoomed[0], 1, delta=0.2)
        for stage in range(4):
            middle = begun + (sum(ms[:stage]) + ms[stage] / 2) / 1e3
            page.mouse.move(*page.evaluate(place, [middle, lane]))
            text = page.locator(".timeline > p").text_content()
            self.assertRegex(text, f"^lane {lane}, batch {batch}, 1 picture: {timeline['stages'][stage]} took {ms[stage]:.2f} ms")
        page.mouse.dblclick(*page.evaluate(place, [begun, lane]))
        self.assertEqual(self.window(page), whole)
        self.check_page(page)

    def test_bars_have_the_colours_of_their_stages(self):
        folder, _, timeline = self.long_run(batches=40)
        page = self.open(self.make(folder))
        self.check_page(page)  # before the test reads pixels, which Chromium comments on
        colours = page.evaluate("""batch => {
          const graph = document.querySelector(".timeline").graph, canvas = graph.hidden_, area = graph.getArea();
          const scale = canvas.width / graph.width_, context = canvas.getContext("2d"), [lane, , , , begun, ...ms] = batch;
          const at = time => {
            const left = graph.toDomXCoord(time) * scale, top = (area.y + lane * area.h / 3) * scale, high = area.h / 3 * scale;
            const pixels = context.getImageData(Math.round(left), Math.round(top + 0.2 * high), 1, Math.round(0.6 * high)).data;
            return [0, 1, 2].map(channel => { let sum = 0; for (let i = channel; i < pixels.length; i += 4) sum += pixels[i]; return sum / (pixels.length / 4); });
          };
          let end = begun;
          return ms.map(length => { end += length / 1000; return at(end - length / 2000); });
        }""", max(timeline["batches"][:20], key=lambda batch: min(batch[5:])))
        for i, one in enumerate(colours):
            for other in colours[:i]:
                self.assertGreater(sum(abs(a - b) for a, b in zip(one, other, strict=True)), 40, colours)

    def test_a_page_with_the_largest_timeline_is_small(self):
        folder, _, timeline = self.long_run(lanes=64)
        file = self.make(folder)
        self.assertLess(file.stat().st_size, 1_000_000)
        page = self.open(file)
        self.assertTrue(page.get_by_text("and 48 more lanes").is_visible())
        self.assertIn("lane 63: ", page.get_attribute(".timeline .chart", "aria-label"))
        self.check_page(page)

    def test_damaged_and_hostile_timelines(self):
        hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"

        def edit(timeline):
            timeline["stages"][0] = hostile

        folder, _, timeline = self.long_run(batches=10, edit=edit)
        page = self.open(self.make(folder))
        self.assertTrue(page.locator(".timeline").get_by_text(hostile).first.is_visible())
        self.assertEqual(page.locator("img").count(), 0)
        self.check_page(page)
        text = json.dumps(timeline)
        for damaged in "", text[:200], text.replace('"version": 1', '"version": 2'), "[]", re.sub(r'"lanes": \d+', '"lanes": 0', text):
            (folder / "timeline.json").write_text(damaged)
            page = self.open(self.make(folder))
            self.assertNotIn("What the lanes did", self.titles(page))
            self.check_page(page)


if __name__ == "__main__":
    program.main()
