// Builds the page of `millrace profile` from the data in the element #data: the figures that --json writes.
"use strict";

const figures = JSON.parse(document.getElementById("data").textContent);
const header = document.getElementById("top"), main = document.getElementById("report"), footer = document.getElementById("about");

const plural = (unit) => (unit === "box" ? "boxes" : `${unit}s`);
const nameOf = (row) => [row.precision, row.engine, row.layout, row.graph ? "graph" : ""].filter(Boolean).join(" ");
const megabytes = (bytes) => (bytes === null ? null : bytes / 1e6);

// A figure of a row. Its attributes name row and key, so a program can compare page and file.
const cell = (row, key, text) => el("td", { class: "number", role: "cell", "data-label": text.label },
  row[key] === null ? el("span", { class: "muted" }, row.state === "ok" ? "not known" : "—")
    : el("data", { value: String(row[key]), "data-row": String(figures.rows.indexOf(row)), "data-key": key }, text.format(row[key])));

function tableOf(rows) {
  const unit = rows[0].unit;
  const columns = [["ms_median", "ms", short], ["ms_p5", "5th percentile", short], ["ms_p95", "95th percentile", short],
    ["ms_each", `ms per ${unit}`, short], ["per_s", `${plural(unit)}/s`, short], ["memory_bytes", "MB", (bytes) => short(megabytes(bytes))],
    ["gpu_percent", "GPU, %", short], ["ratio", "ratio", short]]
    .filter(([key]) => rows.some((row) => row[key] !== null));
  const table = el("table", { class: "stack", role: "table" }, el("caption", {}, "* the smallest size within 3 % of the best rate"));
  // With the roles, the table stays a table for screen readers where the style shows its rows as blocks.
  table.append(el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, el("th", { scope: "col", role: "columnheader" }, `${plural(unit)} of a call`),
    ...columns.map(([, label]) => el("th", { scope: "col", role: "columnheader", class: "number" }, label)))));
  table.append(el("tbody", { role: "rowgroup" }, ...rows.map((row) => el("tr", { role: "row" },
    el("th", { scope: "row", role: "rowheader" }, `${row.size} in ${nameOf(row)}${row.optimum ? " *" : ""}${row.state === "ok" ? "" : ", out of memory"}`),
    ...columns.map(([key, label, format]) => cell(row, key, { label, format }))))));
  return table;
}

// A chart of one figure against the size of a call. Each doubling of the size takes the same width.
function chartOf(title, unit, rows, value) {
  const names = [...new Set(rows.map(nameOf))], sizes = [...new Set(rows.map((row) => row.size))].sort((a, b) => a - b);
  const at = (size, name) => rows.find((row) => row.size === size && nameOf(row) === name);
  const points = sizes.map((size) => [Math.log2(size), ...names.map((name) => { const row = at(size, name); return row ? value(row) : null; })]);
  const facts = names.map((name) => `${name}: ${sizes.map((size) => {
    const row = at(size, name), known = row ? value(row) : null;
    return `${known === null ? "not known" : short(known)} at ${size}`;
  }).join(", ")}`);
  const canvas = el("div", { class: "chart", role: "img", "aria-label": `${title} in ${unit}, by the size of a call. ${facts.join("; ")}.` });
  const swatches = names.map((_, i) => el("span", { class: `line ${LINES[i % LINES.length]}`, "aria-hidden": "true" }));
  const texts = names.map((name) => el("span", {}, name));
  const figure = el("figure", {}, el("figcaption", {}, el("h3", {}, title), el("span", {}, unit)), canvas,
    el("ul", { class: "legend" }, ...names.map((_, i) => el("li", {}, swatches[i], texts[i]))));
  let graph = null;
  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const letters = 0.8 * parseFloat(style.fontSize);
    const series = {};
    names.forEach((name, i) => {
      swatches[i].style.borderTopColor = colour(COLOURS[i % COLOURS.length]);
      series[name] = { color: colour(COLOURS[i % COLOURS.length]), strokePattern: PATTERNS[LINES[i % LINES.length]] };
    });
    const options = { file: points, series, axisLineColor: colour("--line"), gridLineColor: colour("--grid") };
    if (graph !== null) {
      graph.updateOptions(options);
      graph.resize();
      return;
    }
    graph = new Dygraph(canvas, points, {
      ...options, labels: ["size", ...names], strokeWidth: 2, drawPoints: true, pointSize: 4, includeZero: true, xRangePad: 8,
      connectSeparatedPoints: true, animatedZooms: false, axisLabelFontSize: letters, interactionModel: {},
      axes: {
        x: { ticker: () => sizes.map((size) => ({ v: Math.log2(size), label: String(size) })) },
        y: { axisLabelFormatter: (number) => short(number), axisLabelWidth: 4.2 * letters, pixelsPerLabel: 2.6 * letters },
      },
      highlightCallback: (_, x, shown) => names.forEach((name, i) => {
        const point = shown.find((one) => one.name === name);
        texts[i].textContent = `${name}: ${point && point.yval !== null ? short(point.yval) : "not known"} at ${Math.round(2 ** x)}`;
      }),
      unhighlightCallback: () => texts.forEach((text, i) => { text.textContent = names[i]; }),
    });
  };
  return { figure, draw };
}

const drawn = [];
function sectionOf(rows, number) {
  const { package: name, method, unit, views } = rows[0];
  const charts = [chartOf("Rate", `${plural(unit)}/s`, rows, (row) => row.per_s)];
  if (rows.some((row) => row.memory_bytes !== null)) charts.push(chartOf("Memory of a call", "MB", rows, (row) => megabytes(row.memory_bytes)));
  drawn.push(...charts);
  const id = `method-${number}`;
  return el("section", { class: "long", "aria-labelledby": id }, el("h2", { id }, `${name}: ${method}`),
    el("p", { class: "lead" }, `Used in ${views.length === 1 ? "view" : "views"} ${views.join(", ")}.` +
      (rows.every((row) => row.inputs === "pictures") ? "" : " The inputs are artificial.")),
    tableOf(rows), el("div", { class: "charts" }, ...charts.map((chart) => chart.figure)));
}

const methods = new Map();
for (const row of figures.rows) {
  const key = JSON.stringify([row.package, row.method, row.views]);
  methods.set(key, [...(methods.get(key) ?? []), row]);
}
const { cpu, cpu_features: instructions, cores, device, team } = figures.machine;
header.append(el("a", { class: "skip", href: "#report" }, "Skip to the figures"), el("h1", {}, "Millrace profile"),
  el("p", {}, `Model calls, measured outside of the pipeline. Device: ${device}; threads of a call: ${team}. Machine: ${cpu || "unknown processor"} with ${short(cores)} cores` +
    `${instructions === "" ? "" : ` (${instructions})`}.${figures.complete ? "" : " The measurement was stopped, so rows are missing."}`));
main.append(...[...methods.values()].map(sectionOf));
footer.append(el("p", {}, `${figures.tool}. This page needs no network.`),
  el("details", {}, el("summary", {}, "Licence of dygraphs, which draws the charts"),
    el("pre", {}, document.getElementById("licence").content.textContent)));
for (const part of [header, main, footer]) part.hidden = false;
const draw = () => drawn.forEach((chart) => chart.draw());
drawAgain(draw);
draw();
