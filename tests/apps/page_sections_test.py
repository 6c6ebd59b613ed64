"""Sections of report.html that runs of other kinds lack: thumbnails of failed pictures."""

import base64
import io
import os
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
        self.assertEqual(texts["d19.jpg"], "-")
        self.check_numbers(page, report(self.folder / "out"))
        self.check_page(page)
        self.check_layout(file)

        # The page shows the files as they are when it is made.
        (pictures / "a0.jpg").unlink()
        os.mkfifo(pictures / "a0.jpg")
        (pictures / "a1.jpg").unlink()
        page = self.open(self.make(attempt(self.folder / "out")))
        texts = page.eval_on_selector_all("[data-error] .thumbnail", "all => all.slice(0, 2).map(e => e.textContent)")
        self.assertRegex(texts[0], "^cannot be shown: ")
        self.assertRegex(texts[1], "^cannot be shown: ")
        self.check_page(page)
        # A copy without the plan does not know where the pictures are.
        shutil.copytree(self.folder / "out/runs", self.folder / "copy/runs")
        page = self.open(self.make(attempt(self.folder / "copy")))
        self.assertEqual(page.locator("[data-error]").count(), 33)
        self.assertEqual(page.locator(".thumbnail").count(), 0)
        self.check_page(page)


if __name__ == "__main__":
    program.main()
