"""Pages in headless Chromium: a base class for tests of pages.

MILLRACE_SCREENSHOTS names a folder for screenshots, to look at.
"""

import io
import math
import os
import re
from pathlib import Path

import browser
from PIL import Image
from program import Case

SCREENSHOTS = os.environ.get("MILLRACE_SCREENSHOTS")
WIDTHS = 360, 900, 1280, 3840
UNITS = {"%": 0.01, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "MHz": 1, "W": 1, "°C": 1}


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
    """Each test fails if a page wrote to the console or asked for anything but itself."""

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
                    if width < 3840:
                        from axe_playwright_python.sync_playwright import Axe

                        found = Axe().run(page)
                        self.assertEqual(found.violations_count, 0, found.generate_report())
                self.check_page(page)
                page.context.close()
        page = self.open(place, 1280, "dark")
        page.emulate_media(media="print", color_scheme="dark")
        shot = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("L")
        self.assertGreater(middle_grey(shot), 200, "paper is white")
        # 17 cm: the width of A4 and of letter paper without margins.
        for width in page.eval_on_selector_all(".chart canvas", "all => all.map(e => e.getBoundingClientRect().width)"):
            self.assertAlmostEqual(width, 17 / 2.54 * 96, delta=1)
        pdf = page.pdf(format="A4")
        self.assertTrue(pdf.startswith(b"%PDF"))
        if SCREENSHOTS:
            Path(f"{SCREENSHOTS}/{self._testMethodName}-print.pdf").write_bytes(pdf)
        self.check_page(page)
