// The charts over time, drawn by dygraphs. report.js calls makeCharts().
"use strict";

// Makes an element. Texts become text nodes, so nothing in the data can become markup.
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Its legend sets styles in a way that the content policy of this page forbids. The page has a legend of its own.
Dygraph.PLUGINS = Dygraph.PLUGINS.filter((plugin) => plugin !== Dygraph.Plugins.Legend);

// A moment in a series that ends at `end`: "12.5 s", and in a long one "1:05" or "2:01:05".
const timeText = (seconds, end) => {
  if (end < 120) return `${Number(seconds.toFixed(1))} s`;
  const s = Math.round(seconds);
  const two = (n) => String(n).padStart(2, "0");
  const clock = `${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
  return end < 3600 ? clock.replace(/^0/, "") : `${Math.floor(s / 3600)}:${clock}`;
};

// Labels of the time axis at round times: at most one for each `width` pixels.
function timeTicks(from, to, pixels, width, end) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  const most = Math.max(pixels / width, 1);
  const step = steps.find((it) => (to - from) / it <= most) ?? 86400 * Math.ceil((to - from) / most / 86400);
  // "4 h" or "4:30 h" instead of "4:30:00"
  const inHours = (seconds) => `${timeText(seconds, end).slice(0, -3).replace(/:00$/, "")} h`;
  const label = end >= 3600 && step >= 60 ? inHours : (seconds) => timeText(seconds, end);
  const ticks = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) ticks.push({ v: time, label: label(time) });
  return ticks;
}

// A number with about three digits: 0.05, 1.25, 34.1, 1,234.
const short = (value) => {
  const size = Math.abs(value);
  const digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
};

const LINES = ["solid", "dashed", "dotted"];
const PATTERNS = { solid: null, dashed: [9, 5], dotted: [2, 4] };
const COLOURS = ["--s1", "--s2", "--s3", "--s4", "--s5", "--s6", "--s7"];

// The charts, in the order of the page. A column that is missing or always empty is left out.
function wantedCharts(columns) {
  const names = Object.keys(columns);
  const having = (pattern, label) => names.flatMap((name) => {
    const match = name.match(pattern);
    return match ? [{ name, label: label(match) }] : [];
  });
  const gpu = (suffix) => having(new RegExp(`^gpu(\\d+)_${suffix}$`), (match) => `GPU ${match[1]}`);
  return [
    { group: "flow", title: "Rate", unit: "pictures/s", series: [{ name: "pictures_per_s", label: "finished pictures" }] },
    { group: "flow", title: "Pictures in the pipeline", unit: "pictures", series: [{ name: "in_flight", label: "in flight" }] },
    { group: "flow", title: "Queues", unit: "items that wait", series: having(/^queue_(.+)$/, (match) => `before ${match[1]}`) },
    { group: "load", title: "Cores", unit: "cores", series: [
      { name: "cores_busy", label: "this program" }, { name: "other_cores", label: "other programs" },
      { name: "stolen_cores", label: "taken by the hypervisor" }, { name: "throttled_cores", label: "withheld by a quota" }] },
    { group: "load", title: "Time in which some thread waited", unit: "% of the time", factor: 100, series: [
      { name: "cpu_stall", label: "for a core" }, { name: "memory_stall", label: "for memory" }, { name: "io_stall", label: "for a disk" }] },
    { group: "load", title: "Memory of this program", unit: "GB", factor: 1e-9, series: [{ name: "resident_bytes", label: "resident" }] },
    { group: "load", title: "Disks", unit: "MB/s", factor: 1e-6, series: [
      { name: "disk_read_bytes_per_s", label: "read" }, { name: "disk_written_bytes_per_s", label: "written" }] },
    { group: "load", title: "Clock of the CPU", unit: "MHz", series: [{ name: "cpu_mhz", label: "mean" }] },
    { group: "load", title: "Temperature", unit: "°C", series: [{ name: "temperature_c", label: "CPU" }, ...gpu("temperature_c")] },
    { group: "load", title: "Use of the GPUs", unit: "% of the time", series: gpu("utilisation_percent") },
    { group: "load", title: "Memory of the GPUs", unit: "GB", factor: 1e-9, series: gpu("memory_used_bytes") },
    { group: "load", title: "Clock of the GPUs", unit: "MHz", series: gpu("sm_mhz") },
    { group: "load", title: "Power of the GPUs", unit: "W", series: gpu("power_w") },
  ].map((chart) => ({ factor: 1, ...chart, series: chart.series.filter(({ name }) => columns[name]) }))
    .filter((chart) => chart.series.length > 0);
}

// A point is a number, null, or [lowest, mean, highest] of the seconds that it stands for.
function scaled(point, factor) {
  if (point === null) return null;
  return (Array.isArray(point) ? point : [point, point, point]).map((value) => value * factor);
}

function dataTable(chart, series) {
  const table = el("table", {}, el("caption", {}, `${chart.title}, ${chart.unit}`));
  table.append(el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "time"),
    ...chart.series.map(({ label }) => el("th", { scope: "col", class: "number" }, label)))));
  table.append(el("tbody", {}, ...series.time.map((time, row) => el("tr", {}, el("th", { scope: "row" }, timeText(time, series.end)),
    ...chart.series.map(({ name }) => {
      const point = scaled(series.columns[name].points[row], chart.factor);
      return el("td", { class: "number" }, point === null ? "not known" : short(point[1]));
    })))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${chart.title}` }, table);
}

// One chart of `all`, which has the series. describe() puts their present values into its texts.
function makeChart(chart, all) {
  const colours = chart.series.map((_, i) => COLOURS[i % COLOURS.length]);
  const lines = chart.series.map((_, i) => LINES[i % LINES.length]);
  const canvas = el("div", { class: "chart", role: "img" });
  const texts = chart.series.map(() => el("span"));
  const swatches = chart.series.map((_, i) => el("span", { class: `line ${lines[i]}`, "aria-hidden": "true" }));
  const table = el("details", {}, el("summary", {}, "Table", el("span", { class: "hidden" }, ` of ${chart.title}`)));
  // Hundreds of rows: they are made when somebody opens them.
  const fill = () => {
    if (!table.open) return;
    const made = dataTable(chart, all.series);
    if (table.children.length === 1) table.append(made);
    else table.lastElementChild.replaceChildren(...made.childNodes);  // so that its scroll position stays
  };
  table.addEventListener("toggle", fill);
  const figure = el("figure", chart.series.length > 4 ? { class: "wide" } : {}, el("figcaption", {}, el("h3", {}, chart.title), el("span", {}, chart.unit)), canvas,
    el("ul", { class: "legend" }, ...chart.series.map((_, i) => el("li", {}, swatches[i], texts[i]))), table);

  let facts = [], pointed = false;
  const showFacts = () => { if (!pointed) texts.forEach((text, i) => { text.textContent = facts[i]; }); };
  const describe = () => {
    const { time, columns, end } = all.series;
    facts = chart.series.map(({ name, label }) =>
      `${label}: mean ${short(columns[name].mean * chart.factor)}, highest ${short(columns[name].high * chart.factor)}`);
    canvas.setAttribute("aria-label", `${chart.title} in ${chart.unit}, from ${timeText(time[0], end)} to ${timeText(end, end)}. ${facts.join("; ")}.`);
    showFacts();
    fill();
  };
  const data = () => {
    const { time, columns } = all.series;
    return { file: time.map((at, row) => [at, ...chart.series.map(({ name }) => scaled(columns[name].points[row], chart.factor))]), drawPoints: time.length < 3 };
  };
  const draw = () => {
    const letters = 0.8 * parseFloat(getComputedStyle(document.documentElement).fontSize);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    swatches.forEach((swatch, i) => { swatch.style.borderTopColor = colour(colours[i]); });
    const perSeries = {};
    chart.series.forEach(({ label }, i) => { perSeries[label] = { strokePattern: PATTERNS[lines[i]], color: colour(colours[i]) }; });
    const axes = { axisLineColor: colour("--line"), gridLineColor: colour("--grid") };
    if (figure.graph) {
      figure.graph.updateOptions({ ...data(), series: perSeries, ...axes });
      figure.graph.resize();
      return;
    }
    const { file, drawPoints } = data();
    figure.graph = new Dygraph(canvas, file, {
      labels: ["time", ...chart.series.map(({ label }) => label)], series: perSeries, ...axes,
      customBars: true, fillAlpha: chart.series.length > 4 ? 0.06 : 0.18, strokeWidth: 2, includeZero: true, xRangePad: 4, axisLabelFontSize: letters,
      drawPoints, pointSize: 4, connectSeparatedPoints: false, animatedZooms: false,
      axes: {
        x: { ticker: (from, to, pixels) => timeTicks(from, to, pixels, 5.5 * letters, all.series.end) },
        y: { axisLabelFormatter: (value) => short(value), axisLabelWidth: 4.2 * letters, pixelsPerLabel: 2.6 * letters },
      },
      highlightCallback: (_, time, points) => {
        pointed = true;
        chart.series.forEach(({ label }, i) => {
          const point = points.find(({ name }) => name === label);
          texts[i].textContent = `${label}: ${point ? short(point.yval) : "not known"} at ${timeText(time, all.series.end)}`;
        });
      },
      unhighlightCallback: () => { pointed = false; showFacts(); },
      zoomCallback: (from, to) => all.zoom.show(from, to),
    });
  };
  const update = () => { describe(); figure.graph.updateOptions({ ...data(), dateWindow: all.zoom.now }); };
  describe();
  return { figure, draw, update };
}

// Buttons that choose a part of the time, and a sentence that names the part.
// - `span` returns the whole time, [first, last]; in a live page it grows.
// - `whole` is the sentence for the whole time; `show` shows a part and returns its sentence.
// - The shortest part is 1 / `deepest` of the time.
// - The buttons zoom around `middleOf` a part.
function makeZoom({ label, whole, span, deepest, middleOf = (from, to) => (from + to) / 2 }, show) {
  const said = el("span", { class: "muted", "aria-live": "polite" }, whole);
  const zoom = {
    now: null,  // the part of the time, or null for all of it
    show(from, to) {
      const [first, last] = span();
      const length = Math.min(Math.max(to - from, (last - first) / deepest), last - first);
      const start = Math.min(Math.max(from, first), last - length), all = length >= last - first;
      zoom.now = all ? null : [start, start + length];
      const sentence = show(start, start + length, all);
      said.textContent = all ? whole : sentence;
    },
  };
  const shown = () => zoom.now ?? span();
  const move = (towards) => { const [from, to] = shown(), step = (to - from) / 2 * towards; zoom.show(from + step, to + step); };
  const scale = (factor) => { const [from, to] = shown(), middle = middleOf(from, to), half = (to - from) / 2 * factor; zoom.show(middle - half, middle + half); };
  const button = (text, action) => { const it = el("button", { type: "button" }, text); it.addEventListener("click", action); return it; };
  zoom.tools = el("div", { class: "tools", role: "group", "aria-label": label },
    button("Zoom in", () => scale(0.5)), button("Zoom out", () => scale(2)), button("Earlier", () => move(-1)),
    button("Later", () => move(1)), button("Whole time", () => zoom.show(...span())), said);
  return zoom;
}

// Calls `draw` when the colours or the size of the charts change.
function drawAgain(draw) {
  const print = (on) => { document.documentElement.classList.toggle("printing", on); draw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  matchMedia("print").addEventListener("change", ({ matches }) => print(matches));
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
}

const seriesOf = (thinned) => ({ time: thinned.time, end: thinned.time[thinned.time.length - 1],
  columns: Object.fromEntries(thinned.columns.map((column) => [column.name, column])) });

// The charts of all groups, which show the same part of the time.
function makeCharts(thinned) {
  const all = { list: [], series: seriesOf(thinned) };
  all.zoom = makeZoom({ label: "Part of the time that all charts show", whole: "The charts show the whole time.", span: () => [all.series.time[0], all.series.end], deepest: 1000 }, (from, to, whole) => {
    for (const { figure } of all.list) figure.graph.updateOptions(whole ? { dateWindow: null, valueRange: null } : { dateWindow: [from, to] });
    return `The charts show ${timeText(from, all.series.end)} to ${timeText(to, all.series.end)}.`;
  });
  const groups = {};
  const wanted = wantedCharts(all.series.columns);
  for (const chart of wanted) {
    const made = makeChart(chart, all);
    all.list.push(made);
    (groups[chart.group] ??= []).push(made.figure);
  }
  const draw = () => all.list.forEach((chart) => chart.draw());
  // Shows a later state of the same run. False if it needs other charts: then remove() these and make new ones.
  const update = (later) => {
    const series = seriesOf(later);
    if (JSON.stringify(wantedCharts(series.columns)) !== JSON.stringify(wanted)) return false;
    all.series = series;
    all.list.forEach((chart) => chart.update());
    return true;
  };
  const remove = () => all.list.forEach(({ figure }) => figure.graph?.destroy());
  return { groups, draw, tools: all.zoom.tools, update, remove };
}
