// Builds the page from the data in the element #data: report.json, resources.csv thinned, errors.jsonl and run.json.
"use strict";

let data, report, run;
// Before the first picture, a run has no window.
function load(next) {
  data = next;
  report = data.report;
  run = report?.run_window ?? { committed: 0, wall_s: 0 };
}
load(JSON.parse(document.getElementById("data").textContent));

// --- Text and numbers

// Text in which `names` are in code font.
const rich = (text) => text.split(/`([^`]*)`/).map((part, i) => (i % 2 ? el("code", {}, part) : part));

const grouped = (n) => n.toLocaleString("en", { maximumFractionDigits: 0 });
const bytes = (n) => {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (n >= 999.95 && unit < units.length - 1) { n /= 1000; ++unit; }
  return `${unit === 0 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
};
const FORMATS = {
  count: grouped,
  rate: (n) => n.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 }),
  tenths: (n) => n.toFixed(1),
  percent: (n) => `${Math.round(100 * n)} %`,
  gain: (n) => { const percent = Math.round(100 * n); return `${percent < 0 ? "−" : percent > 0 ? "+" : ""}${Math.abs(percent)} %`; },
  ms: (n) => (n < 99.995 ? n.toFixed(2) : n < 999.95 ? n.toFixed(1) : n.toFixed(0)),
  seconds: (n) => (n < 0.9995 ? `${Math.round(1000 * n)} ms` : n < 120 ? `${n.toFixed(1)} s` : n < 7200 ? `${(n / 60).toFixed(1)} min` : `${(n / 3600).toFixed(1)} h`),
  bytes,
  speed: (n) => `${bytes(n)}/s`,
  mhz: (n) => `${n.toFixed(0)} MHz`,
  watt: (n) => `${n.toFixed(0)} W`,
  celsius: (n) => `${n.toFixed(0)} °C`,
};

// The value of a key of report.json such as "run_window.resources.0.utilisation". Keys joined by * and / are multiplied
// and divided. The result is null if a value is null or missing, because it is not known.
function valueOf(key) {
  let result = null;
  for (const [, operator, path] of key.matchAll(/([*/]?)([^*/]+)/g)) {
    const value = path.split(".").reduce((at, name) => (at === null || at === undefined ? null : at[name]), report);
    if (typeof value !== "number") return null;
    result = operator === "*" ? result * value : operator === "/" ? result / value : value;
  }
  return Number.isFinite(result) ? result : null;
}

// A number of report.json. The attribute data-key names it, so a program can compare page and file.
function number(key, format, unknown = "not known") {
  const value = valueOf(key);
  if (value === null) return el("span", { class: "muted", "data-unknown": key }, unknown);
  return el("data", { value: String(value), "data-key": key }, FORMATS[format](value));
}

// --- Sections

function section(title, ...content) {
  const id = title.toLowerCase().replace(/[^a-z]+/g, "-");
  return el("section", { "aria-labelledby": id }, el("h2", { id }, title), ...content);
}

const lead = (...content) => el("p", { class: "lead" }, ...content);
const cell = (label, ...content) => el("td", { class: content.length > 1 ? "number whole" : "number", "data-label": label, role: "cell" }, el("span", {}, ...content));

const wide = (label, ...content) => el("td", { class: "wide", "data-label": label, role: "cell" }, el("span", {}, ...content));

// A table whose rows become blocks on narrow screens. The roles keep it a table for screen readers there.
function stackTable(caption, heads, rows) {
  return el("table", { class: "stack", role: "table" }, el("caption", {}, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads.map((head) =>
      el("th", { scope: "col", role: "columnheader", ...(head.right ? { class: "number" } : {}) }, head.text)))),
    el("tbody", { role: "rowgroup" }, ...rows));
}
const head = (text) => ({ text });
const headRight = (text) => ({ text, right: true });

function verdictSection() {
  const sentence = report.verdict.sentence ?? "";
  let title = report.state === "running" ? "There is no verdict yet" : "This attempt has no verdict", rest = "";
  // "`segment` holds the run back (a short run: 5 pictures ...): the lane section was ..."
  const match = sentence.match(/^([^(:]+)(?: \((a short [^)]*)\))?: (.*)$/s);
  if (report.state === "running" && !report.run_window) {
    title = "No picture is in the pipeline yet";
    rest = data.progress?.ready ? "The run waits for input." : "The models load.";
  } else if (report.state === "failed") {
    title = "The run failed";
    rest = report.error;
  } else if (report.state === "finished" && report.items.resumed > 0 && report.items.resumed === report.items.planned) {
    title = "Nothing was left to do";
    rest = "Earlier attempts finished these pictures.";
  } else if (match) {
    title = match[1];
    rest = match[3].charAt(0).toUpperCase() + match[3].slice(1) + (match[2] ? ` This was ${match[2]}.` : "");
  } else if (sentence) {
    title = sentence;
  }
  if (report.state === "stopped") rest += " The run was stopped before its end; the same command resumes it.";
  rest = rest.replace(/(\d) %/g, "$1\u00a0%"); // a line never ends between a number and its unit
  return el("div", { class: "verdict" }, el("h1", {}, ...rich(title)), ...(rest ? [el("p", {}, ...rich(rest))] : []));
}

function tile(label, ...value) {
  return el("div", {}, el("dt", {}, label), el("dd", {}, ...value));
}

function tiles() {
  const failed = Object.keys(report.items.failed);
  const list = [];
  if (run.committed > 0) {
    list.push(tile("pictures per second", number("run_window.pictures_per_s", "rate")),
      tile("length of the run", number("run_window.wall_s", "seconds")));
  }
  list.push(tile("pictures without an error", number("items.ok", "count"), " ", el("small", {}, "of ", number("items.planned", "count"), report.items.plan_complete ? "" : " known so far")));
  list.push(tile("failed pictures", failed.length === 0 ? "0" : failedSum()), tile("objects", number("items.objects", "count")));
  if (run.committed > 0) {
    list.push(tile("cores used", number("run_window.cpu_s/run_window.wall_s", "tenths"), " ", el("small", {}, "of ", number("run_window.cores", "tenths"))),
      tile("cores used by other programs", number("verdict.other_cores", "tenths")));
  }
  return el("dl", { class: "tiles" }, ...list);
}

function failedSum() {
  const sum = Object.values(report.items.failed).reduce((a, b) => a + b, 0);
  return el("data", { value: String(sum), "data-sum": "items.failed" }, grouped(sum));
}

function checkedPrediction() {
  const it = report.prediction;
  if (!it) return [];
  return [el("p", {}, "An earlier attempt predicted ", number("prediction.predicted_pictures_per_s", "rate"), " pictures/s [",
    number("prediction.low", "rate"), " to ", number("prediction.high", "rate"), "] for ", ...rich(it.label), ". It had ",
    number("prediction.before_pictures_per_s", "rate"), ". This attempt had ", number("prediction.pictures_per_s", "rate"),
    it.inside ? ", inside the range." : ", outside the range.")];
}

function whatIfSection() {
  const changes = report.what_if?.changes ?? [];
  if (changes.length === 0) return [];
  const now = report.what_if.pictures_per_s;
  const largest = Math.max(...changes.map((change) => change.pictures_per_s / now - 1), 0.01);
  const rows = changes.map((change, i) => {
    const key = `what_if.changes.${i}`, gain = change.pictures_per_s / now - 1;
    const bar = el("span");
    bar.style.width = `${Math.max(100 * gain / largest, 0)}%`;
    return el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" }, ...rich(change.label)),
      el("td", { class: "bar", role: "cell" }, el("div", { class: "track gain", "aria-hidden": "true" }, bar)),
      cell("gain", el("data", { value: String(gain), "data-gain": key }, FORMATS.gain(gain))),
      cell("pictures/s", number(`${key}.pictures_per_s`, "rate")),
      cell("likely range", number(`${key}.low`, "rate"), " to ", number(`${key}.high`, "rate")));
  });
  return [section("What a change would bring", ...checkedPrediction(),
    stackTable(el("span", {}, "Predicted rate after one change, compared with ", number("what_if.pictures_per_s", "rate"), " pictures/s now"),
      [head("change"), head(el("span", { class: "hidden" }, "gain as a bar")), headRight("gain"), headRight("pictures/s"), headRight("likely range")], rows))];
}

const KINDS = [
  ["core", "on a core"], ["no-core", "waiting for a core"], ["waits", "waiting for a file, a device, a lock or its own team"],
  ["busy", "busy; the system does not tell how"], ["starved", "starved: no work was there"],
];

// The shares of the time of one row, as a bar. The numbers follow in the cells next to it.
function timeBar(row, known) {
  const parts = [];
  const busy = row.utilisation ?? 0;
  if (typeof row.on_core === "number" && typeof row.no_core === "number") {
    const waits = Math.max(1 - row.on_core - row.no_core, 0);
    parts.push(["core", busy * row.on_core], ["no-core", busy * row.no_core], ["waits", busy * waits]);
  } else {
    parts.push(["busy", busy]);
  }
  if (typeof row.starved === "number") parts.push(["starved", row.starved]);
  return el("div", { class: "track", "aria-hidden": "true" }, ...parts.map(([kind, share]) => {
    known.add(kind);
    const span = el("span", { class: kind });
    span.style.width = `${100 * Math.min(share, 1)}%`;
    return span;
  }));
}

// Only newer reports have these figures, and only of runs that were long enough.
function phases() {
  if (valueOf("run_window.steady_pictures_per_s") === null) return [];
  return [el("p", { class: "muted below" }, "Filling the pipeline took ", number("run_window.fill_s", "seconds"), " and draining it ", number("run_window.drain_s", "seconds"),
    "; in between, it made ", number("run_window.steady_pictures_per_s", "rate"), " pictures/s.")];
}

function stageSection() {
  // Without a source, the run measured nothing but its rate.
  if (run.committed === 0 || run.wall_s <= 0 || !run.source) return [];
  const rows = [], kinds = new Set();
  const add = (row, key, name, style) => rows.push(el("tr", { class: style, role: "row" },
    el("th", { scope: "row", role: "rowheader" }, name),
    el("td", { class: "bar", role: "cell" }, timeBar(row, kinds)),
    cell("busy", number(`${key}.utilisation`, "percent", "-")),
    cell("no core", number(`${key}.utilisation*${key}.no_core`, "percent")),
    cell("starved", number(`${key}.starved`, "percent", "-")),
    cell("p50 ms", number(`${key}.p50_ms`, "ms", "-")), cell("p95 ms", number(`${key}.p95_ms`, "ms", "-")),
    // What cannot starve has no queue of its own.
    cell("queue", typeof row.starved === "number" ? number(`${key}.mean_queue`, "tenths") : "-"),
    cell("items", number(`${key}.items`, "count"), ` ${row.counts}`)));
  run.resources.forEach((resource, i) => {
    // A resource that had nothing to do needs no row.
    if (resource.items === 0) return;
    const key = `run_window.resources.${i}`, parts = resource.parts ?? [];
    add(resource, key, resource.name + (resource.concurrency > 1 ? ` x${resource.concurrency}` : ""), "resource");
    parts.forEach((part, j) => add(part, `${key}.parts.${j}`, part.name, "part"));
  });
  const legend = el("ul", { class: "key" }, ...KINDS.filter(([kind]) => kinds.has(kind)).map(([kind, text]) =>
    el("li", {}, el("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), text)));
  return [section("Where the time went",
    lead("A bar is the whole time of the threads of a row. Its empty part is time in which work waited in a queue, or in which the threads did another stage."),
    legend,
    stackTable("Bold rows are groups of threads, with their stages below. Busy, no core and starved are shares of the time; no core is a part of busy.",
      [head("stage"), head("time"), headRight("busy"), headRight("no core"), headRight("starved"), headRight("p50 ms"), headRight("p95 ms"), headRight("queue"), headRight("items")], rows),
    ...phases(), el("p", { class: "muted below" }, "Before this time, loading took ", number("load_s", "seconds"), " and warm-up ", number("warm_up_s", "seconds"), ". The source had no credits for ", number("run_window.source.without_credits_s", "seconds"), " of ", number("run_window.wall_s", "seconds"),
      ". Read: ", number("read_bytes/run_window.wall_s", "speed"), "; results written: ", number("written_bytes/run_window.wall_s", "speed"), "."))];
}

// Only reports of runs with several views have them. Older reports have no such key.
function viewSection() {
  const views = report.views ?? [];
  if (views.length === 0) return [];
  const shareBar = (share) => {
    const bar = el("span");
    bar.style.width = `${100 * Math.min(share ?? 0, 1)}%`;
    return el("td", { class: "bar", role: "cell" }, el("div", { class: "track gain", "aria-hidden": "true" }, bar));
  };
  const rows = views.flatMap((view, i) => {
    const key = `views.${i}`;
    const row = el("tr", { class: "resource", role: "row" }, el("th", { scope: "row", role: "rowheader" }, view.name), shareBar(view.share),
      cell("share", number(`${key}.share`, "percent", "-")), cell("items", number(`${key}.pictures`, "count"), " pictures"), cell("mean ms", number(`${key}.mean_ms`, "ms", "-")),
      cell("failed", number(`${key}.failed`, "count")), cell("objects", number(`${key}.objects`, "count")));
    if (view.pictures === 0) return [row];
    return [row, ...view.stages.map((stage, j) => el("tr", { class: "part", role: "row" }, el("th", { scope: "row", role: "rowheader" }, stage.name), shareBar(stage.share),
      cell("share", number(`${key}.stages.${j}.share`, "percent", "-")), cell("items", number(`${key}.stages.${j}.items`, "count"), ` ${stage.counts}`),
      cell("mean ms", number(`${key}.stages.${j}.mean_ms`, "ms", "-")), cell("failed", number(`${key}.stages.${j}.failed`, "count")), cell("objects", "-")))];
  });
  const result = section("Views", lead("Each view has its own pictures, and may have its own models and options."),
    stackTable("Bold rows are views, with their share of the busy time of all stages. Below, each stage has the share of the view in the time of this stage.",
      [head("view"), head(el("span", { class: "hidden" }, "share as a bar")), headRight("share"), headRight("items"), headRight("mean ms"), headRight("failed"), headRight("objects")], rows));
  result.classList.add("long");
  return [result];
}

// Whether the figures are final. Only /status.json has a state of its own.
const isOver = () => !["starting", "running"].includes(data.state);

// `update` shows a later timeline; it is false if the section is needed, gone, or another one.
function timelineSection() {
  if (!data.timeline) return { parts: [], draw: () => {}, remove: () => {}, update: () => !data.timeline };
  const text = el("p", { class: "lead" });
  const explain = ({ cut }) => {
    text.textContent = "Each bar is a stage of one batch. A gap is time without a batch: the lane was starved. Time counts from the start of loading." +
      (cut ? ` The dashed part stands for ${FORMATS.seconds(cut.to_s - cut.from_s)} with ${grouped(cut.batches)} batches, which are not recorded.` : "") +
      (isOver() ? "" : " It shows the newest batches that are done, and stands still while you zoom in or open its table.") +
      " Drag across the chart to zoom in; a double click, or Whole time, shows everything again.";
  };
  explain(data.timeline);
  const { figure, draw, update, remove } = makeTimeline(data.timeline, explain);
  const made = section("What the lanes did", text, figure);
  made.classList.add("long");
  return { parts: [made], draw, remove, update: () => Boolean(data.timeline) && update(data.timeline) };
}

// The sections with charts. `update` shows later data in them; it is false if other sections are needed.
function chartSections() {
  if (!data.series || data.series.time.length < 2) {
    const why = isOver() ? (data.series ? "The run was too short for charts over time." : "This attempt has no file resources.csv, so there are no charts over time.")
      : "The charts begin when the run has lasted two seconds.";
    return { parts: [section("Over time", el("p", {}, why))], draw: () => {}, update: () => false, remove: () => {} };
  }
  const { groups, draw, tools, update, remove } = makeCharts(data.series);
  const how = el("p", { class: "lead" });
  const explain = () => {
    const step = data.series.rows_per_point;
    const thinned = step > 1 ? ` A point stands for ${step} rows of resources.csv. The band around a line goes from the lowest to the highest of them.` : "";
    how.textContent = `Time counts from the start of loading.${thinned} Drag across a chart to zoom in all of them; a double click, or Whole time, shows everything again.`;
  };
  explain();
  const parts = [];
  const group = (name, title) => {
    if (!groups[name]) return;
    const controls = parts.length === 0 ? [how, tools] : [lead("The load of this machine, from resources.csv.")];
    const made = section(title, ...controls, el("div", { class: "charts" }, ...groups[name]));
    made.classList.add("long");
    parts.push(made);
  };
  group("flow", "Rate and queues over time");
  group("load", "The machine over time");
  return { parts, draw, remove, update: () => {
      if (!data.series || data.series.time.length < 2) return false;
      explain();
      return update(data.series);
    } };
}

function gpuSection() {
  if (!report.gpus?.length) return [];
  const rows = report.gpus.map((gpu, i) => {
    const key = `gpus.${i}`;
    return el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" }, gpu.bus),
      cell("some kernel ran", number(`${key}.mean_utilisation`, "percent")), cell("most memory", number(`${key}.peak_memory_bytes`, "bytes")),
      cell("clock", number(`${key}.mean_sm_mhz`, "mhz")), cell("power", number(`${key}.mean_power_w`, "watt")),
      cell("hottest", number(`${key}.peak_temperature_c`, "celsius")),
      cell("heat limit", number(`${key}.heat_limited`, "percent")), cell("power limit", number(`${key}.power_limited`, "percent")));
  });
  return [section("GPUs", stackTable("What the driver measured. The limits are shares of the time with a lower clock.",
    [head("bus"), headRight("some kernel ran"), headRight("most memory"), headRight("clock"), headRight("power"), headRight("hottest"),
      headRight("heat limit"), headRight("power limit")], rows))];
}

const ERRORS_SHOWN = 12;

// A small picture, or why there is none. The program makes them of the first few pictures only.
function thumbnail({ path, thumbnail: it }) {
  if (!it) return el("span", { class: "muted" }, "-");
  if (!it.jpeg) return el("span", { class: "no-thumbnail" }, `cannot be shown: ${it.why}`);
  return el("img", { src: `data:image/jpeg;base64,${it.jpeg}`, alt: `thumbnail of ${path}`, width: it.width, height: it.height });
}

function errorTable(caption, errors) {
  const thumbnails = errors.some((error) => error.thumbnail);
  const heads = [head("file"), ...(thumbnails ? [head("picture")] : []), head("stage"), head("reason"), head("message")];
  return stackTable(caption, heads, errors.map((error) => el("tr", { role: "row", "data-error": "" },
    el("th", { scope: "row", role: "rowheader" }, el("code", {}, error.path)),
    ...(thumbnails ? [el("td", { class: "thumbnail", role: "cell" }, thumbnail(error))] : []),
    wide("stage", error.stage), wide("reason", error.reason), wide("message", error.detail))));
}

function errorSection() {
  const reasons = Object.keys(report.items.failed).sort((a, b) => report.items.failed[b] - report.items.failed[a]);
  if (reasons.length === 0 && data.errors.length === 0) return [section("Errors", el("p", {}, "No picture failed."))];
  const content = [];
  if (reasons.length > 0) {
    content.push(stackTable("Failed pictures of all attempts, by reason", [head("reason"), headRight("pictures")],
      reasons.map((reason) => el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" }, el("code", {}, reason)),
        cell("pictures", number(`items.failed.${reason}`, "count"))))));
  }
  if (data.errors.length > 0) {
    const all = report.items.failed_in_this_attempt, first = data.errors.slice(0, ERRORS_SHOWN), others = data.errors.slice(ERRORS_SHOWN);
    if (typeof all === "number" && all > data.errors.length) {
      content.push(el("p", { class: "below" }, `The first ${grouped(data.errors.length)} of the `, number("items.failed_in_this_attempt", "count"),
        " pictures that failed in this attempt follow; errors.jsonl has all of them."));
    }
    content.push(errorTable(others.length > 0 ? `The first ${first.length} pictures that failed in this attempt` : "The pictures that failed in this attempt", first));
    if (others.length > 0) content.push(el("details", {}, el("summary", {}, `The next ${grouped(others.length)} pictures`), errorTable("More pictures that failed", others)));
  } else {
    content.push(el("p", { class: "muted" }, report.items.failed_in_this_attempt === 0
      ? "None of them failed in this attempt."
      : "errors.jsonl, which lists those of this attempt, cannot be read."));
  }
  const result = section("Errors", ...content);
  result.classList.add("long");
  return [result];
}

function noteSection() {
  const notes = [...report.notes, ...Object.entries(report.reduced ?? {}).flatMap(([name, { summary }]) => summary.map((sentence) => `${name}: ${sentence}`))];
  return notes.length === 0 ? [] : [section("Notes", el("ul", { class: "notes" }, ...notes.map((note) => el("li", {}, ...rich(note)))))];
}

// Lines of run.json's `config` are "  name: value    # origin", below the name of their group.
function settingsOf(config) {
  const settings = [];
  let group = "";
  for (const line of config.split("\n")) {
    const mark = line.lastIndexOf("  # ");
    if (mark < 0) {
      if (/^\S+:$/.test(line)) group = line.slice(0, -1);
      continue;
    }
    const text = line.slice(0, mark).trimEnd(), origin = line.slice(mark + 4), colon = text.indexOf(":");
    const inGroup = text.startsWith("  ");
    settings.push({ name: (inGroup ? `${group}.` : "") + text.slice(0, colon).trim(), value: text.slice(colon + 1).trim(), origin });
  }
  return settings;
}

function settingsSection() {
  if (!data.run?.config) return [];
  const changed = settingsOf(data.run.config).filter(({ origin }) => origin !== "default");
  const result = section("Settings",
    stackTable("The settings that are not defaults", [head("setting"), head("value"), head("set by")],
      changed.map(({ name, value, origin }) => el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" }, el("code", {}, name)),
        wide("value", el("code", {}, value || "(see the list below)")), wide("set by", origin)))),
    el("details", {}, el("summary", {}, "All settings"), el("pre", { id: "config" }, data.run.config)));
  result.classList.add("long");
  return [result];
}

function aboutSection() {
  const models = report.models.loads.map(({ package: name, variant }) => name + (variant ? ` (compiled: ${variant})` : ""));
  const facts = [`Attempt ${report.run}, started ${report.started}, ${data.state ?? report.state}`];
  if (data.run?.tool) facts.push(data.run.tool);
  if (models.length > 0) facts.push(`models: ${[...new Set(models)].join(", ")}`);
  return [el("p", {}, `${facts.join("; ")}.`),
    el("p", {}, data.state ? "/status.json has the same figures for programs, and /metrics has them for Prometheus."
      : "This page needs no network. The attempt's report.json has the same figures for programs."),
    el("details", {}, el("summary", {}, "Licence of dygraphs, which draws the charts"),
      el("pre", {}, document.getElementById("licence").content.textContent))];
}

// --- The page

const header = document.getElementById("top"), main = document.getElementById("report"), footer = document.getElementById("about");
const skipLink = () => el("a", { class: "skip", href: "#report" }, "Skip to the figures");

function showReport() {
  document.title = `Millrace report ${report.run}`;
  const timeline = timelineSection(), charts = chartSections();
  header.append(skipLink(), el("p", { class: "muted" }, `Millrace report, attempt ${report.run}`));
  main.append(verdictSection(), tiles(), ...whatIfSection(), ...stageSection(), ...viewSection(), ...timeline.parts, ...charts.parts, ...gpuSection(), ...errorSection(), ...noteSection(), ...settingsSection());
  footer.append(...aboutSection());
  for (const part of [header, main, footer]) part.hidden = false;
  const draw = () => { timeline.draw(); charts.draw(); };
  drawAgain(draw);
  draw();
}
if (!data.state) showReport();  // live.js shows a run in progress
