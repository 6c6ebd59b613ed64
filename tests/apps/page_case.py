"""What tests of pages share: a browser that opens them, and checks of every page.

MILLRACE_SCREENSHOTS names a folder for screenshots, to look at.
"""

import csv
import io
import json
import math
import os
import re
from pathlib import Path

import browser
import program
from PIL import Image
from program import Case, millrace

SCREENSHOTS = os.environ.get("MILLRACE_SCREENSHOTS")
WIDTHS = 360, 900, 1280, 3840
UNITS = {"%": 0.01, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "MHz": 1, "W": 1, "°C": 1}


def attempt(output):
    """The folder of the newest attempt."""
    return max((Path(output) / "runs").iterdir(), key=lambda f: (f.name.rsplit("-", 1)[0], int(f.name.rsplit("-", 1)[1])))


def middle_grey(picture):
    return sorted(picture.resize((64, 64)).tobytes())[2048]


def value_of(key, figures):
    """The value of a data-key in report.json; keys are joined by * and /. None if it is not known."""
    result = None
    for operator, path in re.findall(r"([*/]?)([^*/]+)", key):
        value = figures
        for name in path.split("."):
            value = value[int(name)] if isinstance(value, list) else (value or {}).get(name)
        if value is None:
            return None
        result = value if operator == "" else result * value if operator == "*" else result / value
    return result


def check_shown(case, text, value, key):
    """The text is the value, rounded to the digits that it shows."""
    match = re.fullmatch(r"([−+-]?)([\d,]+(?:\.(\d+))?)(?: (\S+?)(/s)?)?", text)
    case.assertIsNotNone(match, f"{key} shows {text!r}")
    scale = UNITS[match[4]] if match[4] else 1
    number = float(match[2].replace(",", "")) * (-1 if match[1] in ("-", "−") else 1)
    case.assertLessEqual(abs(number - value / scale), 0.500001 * 10 ** -len(match[3] or ""), f"{key} is {value} and shows {text!r}")


class PageCase(Case):
    """Pages in headless Chromium. Each test fails if a page wrote to the console or asked for anything but itself."""

    @classmethod
    def setUpClass(cls):
        cls.chromium = cls.enterClassContext(browser.chromium())

    def open(self, place, width=1280, scheme="light", **options):
        context = self.chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        self.addCleanup(context.close)
        page = context.new_page()
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("dialog", lambda dialog: (page.said.append("a dialog"), dialog.dismiss()))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(place if str(place).startswith("http:") else Path(place).resolve().as_uri())
        return page

    def check_page(self, page):
        self.assertEqual(page.said, [])
        asked = [url for url in page.asked if not url.startswith("data:")]
        self.assertEqual(asked[0], page.url)
        # Only a live page asks for more: for the next states.
        status = page.url.split("?")[0] + "status.json?after="
        self.assertEqual([url for url in asked[1:] if not (page.url.startswith("http:") and url.startswith(status))], [])

    def check_numbers(self, page, figures):
        """Every marked number is that of report.json, and what is not marked as known is null there."""
        marked = page.eval_on_selector_all("[data-key]", "all => all.map(e => [e.dataset.key, e.value, e.textContent])")
        for key, value, text in marked:
            expected = value_of(key, figures)
            self.assertIsNotNone(expected, key)
            self.assertTrue(math.isclose(float(value), expected, rel_tol=1e-9, abs_tol=1e-12), f"{key}: {value}, not {expected}")
            # Times in columns of milliseconds have their unit in the head of the column.
            check_shown(self, text, expected, key)
        for key in page.eval_on_selector_all("[data-unknown]", "all => all.map(e => e.dataset.unknown)"):
            self.assertIsNone(value_of(key, figures), key)
        # A number without a mark would escape these checks. These parts have none on purpose.
        bare = page.evaluate("""() => {
          const copy = document.getElementById("report").cloneNode(true);
          for (const e of copy.querySelectorAll("[data-key], [data-sum], [data-gain], [data-progress], figure, pre, code, .verdict, .notes, [data-error], details, .lead, caption")) e.remove();
          return [...copy.querySelectorAll("dd, td.number")].map(e => e.textContent).filter(text => /[0-9]/.test(text));
        }""")
        self.assertEqual([text for text in bare if text != "0"], [])
        return [key for key, _, _ in marked]

    def check_with_axe(self, page):
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(page)
        self.assertEqual(found.violations_count, 0, found.generate_report())

    def check_layout(self, place):
        """No horizontal scroll, no fault that axe finds, and the right background, in all forms."""
        for width in WIDTHS:
            for scheme in "light", "dark":
                page = self.open(place, width, scheme)
                with self.subTest(width=width, scheme=scheme):
                    self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
                    shot = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("L")
                    (self.assertGreater if scheme == "light" else self.assertLess)(middle_grey(shot), 128)
                    if SCREENSHOTS:
                        Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
                        page.screenshot(full_page=True, path=f"{SCREENSHOTS}/{self._testMethodName}-{width}-{scheme}.png")
                    self.check_with_axe(page)
                self.check_page(page)
                page.context.close()
        page = self.open(place, 1280, "dark")
        page.emulate_media(media="print", color_scheme="dark")
        shot = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("L")
        self.assertGreater(middle_grey(shot), 200, "paper is white")
        self.check_with_axe(page)
        # 17 cm: the width of A4 and of letter paper without margins.
        for width in page.eval_on_selector_all(".chart canvas", "all => all.map(e => e.getBoundingClientRect().width)"):
            self.assertAlmostEqual(width, 17 / 2.54 * 96, delta=1)
        pdf = page.pdf(format="A4")
        self.assertTrue(pdf.startswith(b"%PDF"))
        if SCREENSHOTS:
            Path(f"{SCREENSHOTS}/{self._testMethodName}-print.pdf").write_bytes(pdf)
        self.check_page(page)

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
