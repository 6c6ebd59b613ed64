"""The live page of `millrace run --serve`, in a real browser."""

import json
import os

import program
from live_run import LiveRun
from page_case import PageCase, check_shown


class LivePage(PageCase):
    def setUp(self):
        super().setUp()
        self.pictures = program.write_pictures(self.folder / "in", 6)

    def start(self, *options, pictures=3, **more):
        run = LiveRun(self, *options, **more)
        run.add(*[self.pictures / f"000{i}.jpg" for i in range(pictures)])
        self.state = run.until_done(pictures)
        return run

    def freeze(self, page):
        """Keeps the state that the page shows, and returns it."""
        page.evaluate("window.update = () => {}")
        return page.evaluate("data")

    def wait(self, page, condition):
        """Waits up to two minutes. Playwright's own function evaluates text in the page, which its content policy forbids."""
        held = page.evaluate("new Promise((end) => { let left = 6000; const look = () => (%s) ? end(true) : --left ? setTimeout(look, 20) : end(false); look(); })" % condition)
        self.assertTrue(held, condition)

    def test_it_shows_the_status_and_follows_the_run(self):
        run = self.start()
        page = self.open(run.url)
        state = self.freeze(page)
        self.assertEqual(state["progress"]["done"], 3)
        keys = self.check_numbers(page, state["report"])
        self.assertIn("items.ok", keys)
        self.assertIn("run_window.resources.0.items", keys)
        marked = page.eval_on_selector_all("[data-progress]", "all => all.map(e => [e.dataset.progress, e.value, e.textContent])")
        self.assertEqual([key for key, _, _ in marked], ["done", "planned", "pictures_per_s", "in_flight"])  # nobody knows how many pictures come
        for key, value, text in marked:
            self.assertEqual(float(value), state["progress"][key], key)
            check_shown(self, text, state["progress"][key], key)
        self.assertIn("Rate", page.eval_on_selector_all("figcaption h3", "all => all.map(e => e.textContent)"))
        self.check_page(page)

        page = self.open(run.url)
        run.add(self.pictures / "0003.jpg", self.pictures / "0004.jpg")
        self.wait(page, "document.querySelector('[data-progress=done]').value === '5'")
        self.check_page(page)
        run.finish()
        self.wait(page, "document.querySelector('.state').textContent.startsWith('The run has finished.')")
        self.assertIn(f"{next((run.output / 'runs').iterdir()).resolve()}/report.html", page.text_content(".state"))
        self.check_numbers(page, program.report(run.output))
        self.assertEqual(page.locator("[data-progress]").count(), 0)
        self.check_page(page)  # also: the end of the server is no error

    def test_what_the_reader_does_stays(self):
        run = self.start("--set", "decode.max_megapixels=7")
        page = self.open(run.url, width=360)
        page.get_by_text("All settings").click()
        page.get_by_text("Table of Rate").click()
        page.locator("figure").first.locator("tbody tr").last.wait_for()
        zoom = page.get_by_role("button", name="Zoom in")
        zoom.focus()
        page.keyboard.press("Enter")
        page.locator("figure .scroll").first.evaluate("e => { e.scrollTop = 7; }")
        page.evaluate("window.scrollTo(0, 400)")
        seen = """() => ({open: [...document.querySelectorAll("details")].map(e => e.open), focus: document.activeElement.textContent,
          y: window.scrollY, inner: document.querySelector("figure .scroll").scrollTop, zoom: document.querySelector(".tools .muted").textContent,
          window: document.querySelector("figure").graph.xAxisRange()})"""
        before = page.evaluate(seen)
        self.assertEqual((before["focus"], before["y"]), ("Zoom in", 400))
        page.evaluate("window.kept = [...document.querySelectorAll('button, details, section, figure, h1')]")
        count = page.evaluate("data.series.rows")
        run.add(self.pictures / "0003.jpg")
        self.wait(page, f"data.series.rows >= {count + 2} && data.progress.done === 4")
        self.assertEqual(page.evaluate(seen), before)
        self.assertTrue(page.evaluate("window.kept.every(e => e.isConnected)"))
        self.check_page(page)
        run.finish()

    def test_the_lanes_follow_the_run(self):
        table = {"name": "none", "upload_gb_per_s": 1000, "download_gb_per_s": 1000, "letterbox_ms": 0, "find_boxes_ms": 0, "outline_ms": 0,
                 "forward": {"call_ms": 2, "each_ms": 1}}
        run = self.start("--detector", program.ROOT / "models/builtin/front.pkg", "--engine", f"simulated:{self.write('table.yaml', json.dumps(table))}",
                         "--set", "batch.size=1", "--set", "threads.lanes=2", recipe="stages: [decode, preprocess, detect, encode]\n")
        page = self.open(run.url)
        rows = page.locator(".timeline tbody tr")
        self.wait(page, "data.timeline !== null && data.timeline.batches.length === 3")
        self.assertEqual(page.evaluate("data.timeline.stages"), ["preprocess", "detect"])
        self.check_page(page)
        page.evaluate("window.kept = document.querySelector('.timeline')")
        table = page.locator(".timeline summary")
        table.click()
        # Not before: until the table is open, the chart follows the run, and its summary names the time.
        summary = page.locator(".timeline .chart").get_attribute("aria-label")
        self.wait(page, "document.querySelectorAll('.timeline tbody tr').length === 3")
        run.add(self.pictures / "0003.jpg", self.pictures / "0004.jpg")
        self.wait(page, "data.timeline.batches.length === 5")
        self.assertEqual(rows.count(), 3)  # the reader looks at it
        self.assertEqual(page.locator(".timeline .chart").get_attribute("aria-label"), summary)
        table.click()
        self.wait(page, f"document.querySelector('.timeline .chart').getAttribute('aria-label') !== {json.dumps(summary)}")
        table.click()
        self.wait(page, "document.querySelectorAll('.timeline tbody tr').length === 5")
        self.assertTrue(page.evaluate("window.kept.isConnected"))
        run.finish()
        self.wait(page, "data.state === 'finished'")
        standing = "document.querySelector('main').textContent.includes('stands still while')"
        self.assertTrue(page.evaluate(standing))
        table.click()
        self.wait(page, f"!{standing}")  # only now the chart is that of the whole run
        file = json.loads(next((run.output / "runs").glob("*/timeline.json")).read_text())
        self.assertEqual(page.evaluate("data.timeline.batches"), file["batches"])
        self.check_page(page)

    def test_readers_hear_the_verdict_only_when_it_changes(self):
        run = self.start()
        page = self.open(run.url)
        state = self.freeze(page)
        said = page.evaluate("[...document.querySelectorAll('[aria-live]')].map(e => e.textContent)")
        self.assertIn(page.text_content("h1"), said[0])
        changes = page.evaluate("""async (state) => {
          const heard = [];
          const observer = new MutationObserver(() => heard.push(announcer.textContent));
          observer.observe(announcer, { childList: true, characterData: true, subtree: true });
          for (let i = 0; i < 5; ++i) {
            const next = structuredClone(state);
            next.progress.done += i;
            next.report.run_window.wall_s += i;
            next.report.verdict.sentence = i < 3 ? state.report.verdict.sentence : "`decode` holds the run back: it was busy.";
            load(next);
            show();
            await new Promise((done) => setTimeout(done));
          }
          return heard;
        }""", state)
        self.assertEqual(changes, ["decode holds the run back"])
        run.finish()

    def test_failed_pictures_get_thumbnails(self):
        """One a second, for the first twelve. A file that is no picture says why it has none."""
        run = LiveRun(self, "--set", "decode.max_megapixels=0.1")
        page = self.open(run.url)
        run.add(*(program.write_picture(self.folder / f"large {i}.jpg", 400 + 10 * i, 300, seed=i) for i in range(2)))
        damaged = self.folder / "damaged.jpg"
        damaged.write_bytes(b"no picture")
        run.add(damaged, self.pictures / "0000.jpg")
        self.wait(page, "document.querySelectorAll('[data-error] img').length === 2 && document.querySelectorAll('.no-thumbnail').length === 1")
        shown = page.eval_on_selector_all("[data-error] img", "all => all.map(img => [img.alt, img.naturalWidth, img.naturalHeight]).sort()")
        self.assertEqual([alt for alt, _, _ in shown], [f"thumbnail of {self.folder}/large {i}.jpg" for i in range(2)])
        self.assertTrue(all(0 < width * height <= 160 * 120 for _, width, height in shown), shown)
        self.assertRegex(page.text_content(".no-thumbnail"), "cannot be shown: .*plain text")
        self.check_page(page)
        run.add(*(program.write_picture(self.folder / f"more {i}.jpg", 400, 300, seed=i) for i in range(12)))
        state = run.until(lambda it: sum("thumbnail" in error for error in it["errors"]) == 12)
        self.assertEqual(len(run.until_done(16)["errors"]), 15)
        self.assertLess(len(json.dumps(state)), 400_000)
        later = run.until(lambda it: it["version"] > state["version"] + 1)
        self.assertEqual(sum("thumbnail" in error for error in later["errors"]), 12)
        run.finish(program.SOME_FAILED)

    def test_hostile_names_stay_text(self):
        hostile = [b"<img src=x onerror=alert(1)>.jpg", b"x<script>alert(1)<.jpg", b"quote\"'`.jpg", b"control\x01\x1b[31m.jpg", b"\xff\xfe.jpg", "\u202egpj.exe.jpg".encode()]
        run = LiveRun(self)
        page = self.open(run.url)
        for name in hostile:
            run.program.stdin.write(os.fsencode(self.folder) + b"/" + name + b"\n")
        run.add(self.pictures / "0000.jpg")
        self.wait(page, f"document.querySelectorAll('[data-error]').length === {len(hostile)}")
        shown = page.eval_on_selector_all("[data-error] code", "all => all.map(e => e.textContent)")
        for part in ("<img src=x onerror=alert(1)>.jpg", "x<script>alert(1)<.jpg", "quote\"'`.jpg", "control\\x01\\x1b[31m.jpg", "\\xff\\xfe.jpg", "\\u202egpj.exe.jpg"):
            self.assertTrue(any(part in path for path in shown), (part, shown))
        self.assertEqual(page.locator("img, main script").count(), 0)
        self.check_page(page)
        run.finish(program.SOME_FAILED)

    def test_with_a_token(self):
        run = LiveRun(self, env={**os.environ, "MILLRACE_SERVE_TOKEN": "a-long-token-for-tests"})
        page = self.open(run.url + "?token=a-long-token-for-tests")
        self.wait(page, "data.version > 2 && data.state === 'running'")
        self.check_page(page)
        run.finish(program.USAGE)
        self.wait(page, "document.querySelector('.state').textContent.startsWith('The run failed: ')")

    def test_a_server_that_is_gone(self):
        run = self.start()
        page = self.open(run.url)
        numbers = page.text_content("h1")
        run.program.kill()
        self.wait(page, "document.querySelector('.state').textContent.startsWith('The page cannot reach the run')")
        self.assertIn("/report.html", page.text_content(".state"))
        self.assertEqual(page.text_content("h1"), numbers)  # the last state stays

    def test_a_run_of_ten_million_pictures_and_a_clock_that_jumps(self):
        run = self.start()
        page = self.open(run.url)
        page.clock.install()
        state = self.freeze(page)
        state["report"]["items"].update(planned=10_000_000, ok=9_000_000, failed={"truncated": 100_000}, failed_in_this_attempt=100_000)
        state["report"]["run_window"].update(committed=9_100_000, wall_s=100_000.5, pictures_per_s=91.0)
        state["progress"].update(done=9_100_000, planned=10_000_000, plan_complete=True, pictures_per_s=1234.5, left_s=729.04, busiest="segment")
        state["errors"] = [{"path": f"{i}.jpg", "stage": "decode", "reason": "truncated", "detail": "x" * 1000} for i in range(200)]
        page.clock.set_system_time(0)
        page.evaluate("(state) => { load(state); show(); }", state)
        self.check_numbers(page, state["report"])
        self.assertEqual([e.text_content() for e in page.locator("[data-progress]").all()], ["9,100,000", "10,000,000", "1,234.50", "12.2 min", "0"])
        state["progress"].update(windows_done=120, windows_in_work=4900, windows_per_s=8.0)
        page.evaluate("(state) => { load(state); show(); }", state)
        self.assertEqual([e.text_content() for e in page.locator("[data-progress^=windows]").all()], ["120", "4,900", "8.0"])
        self.assertEqual(page.locator("progress").get_attribute("value"), "0.91")
        self.assertEqual(page.title(), f"91 % - Millrace run {state['report']['run']}")
        self.assertTrue(page.get_by_text("The first 200 of the 100,000 pictures").count() == 1)
        self.check_page(page)
        run.finish()

    def test_before_the_first_picture(self):
        run = LiveRun(self)
        run.until(lambda it: it["progress"] and it["progress"]["ready"])
        page = self.open(run.url)
        self.assertEqual(page.text_content("h1"), "No picture is in the pipeline yet")
        self.assertIn("waits for input", page.text_content(".verdict"))
        self.check_numbers(page, self.freeze(page)["report"])
        run.finish(program.USAGE)

    def test_layout(self):
        run = self.start()
        self.check_layout(run.url)
        run.finish()

    def test_without_scripts_the_page_is_the_text(self):
        run = self.start()
        page = self.open(run.url, java_script_enabled=False)
        self.assertIn("3 ok, 0 failed of 3 pictures known so far", page.locator("pre").text_content())
        run.finish()

    def test_ten_thousand_updates_do_not_grow_the_page(self):
        run = self.start()
        page = self.open(run.url)
        state = self.freeze(page)
        memory = page.context.new_cdp_session(page)

        def measure():
            memory.send("HeapProfiler.collectGarbage")
            counts = memory.send("Memory.getDOMCounters")
            return memory.send("Runtime.getHeapUsage")["usedSize"], counts["nodes"], counts["jsEventListeners"]

        def kept():
            # On a busy machine, one figure can hold megabytes of fresh garbage. What the page keeps is in each figure.
            return [min(figures) for figures in zip(*(measure() for _ in range(10)))]

        def show(first, last):
            # A real state whose figures, errors and columns change; in turns, the page needs other sections and charts.
            page.evaluate("""async ([text, first, last]) => {
              for (let i = first; i < last; ++i) {
                const next = JSON.parse(text);
                next.version += i;
                next.progress.done += i;
                next.report.items.ok += i;
                next.report.run_window.wall_s += i;
                next.report.verdict.sentence = `\\`stage ${i % 3}\\` holds the run back: it was busy ${i % 100} %.`;
                next.report.notes = i % 5 ? [] : [`note ${i}`];
                next.series.time = next.series.time.map((time) => time + i);
                if (i % 100 === 0) next.series.columns.pop();
                next.timeline = i % 200 === 0 ? null : { lanes: 2, stages: ["preprocess", "detect"], views: ["default"], begun_s: i, ended_s: i + 1, cut: null,
                  batches: Array.from({ length: 8 }, (_, row) => [row % 2, 8 * i + row, 4, 0, i + row / 8, 20, 70]) };
                next.errors = Array.from({ length: i % 3 }, (_, row) => ({ path: `${row}-${i}.jpg`, stage: "decode", reason: "empty", detail: `${i}` }));
                load(next);
                show();
                if (i % 50 === 0) await new Promise((done) => setTimeout(done));
              }
            }""", [json.dumps(state), first, last])

        show(0, 1000)
        heap, nodes, listeners = kept()
        show(1000, 11_000)
        heap_after, nodes_after, listeners_after = kept()
        self.assertLess(heap_after - heap, 1 << 20)
        self.assertLessEqual(nodes_after, nodes + 50)
        self.assertLessEqual(listeners_after, listeners)
        self.check_numbers(page, page.evaluate("data.report"))
        self.check_page(page)
        run.finish()


if __name__ == "__main__":
    program.main()
