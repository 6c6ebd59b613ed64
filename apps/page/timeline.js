// The timeline of the lanes, drawn by dygraphs. report.js calls makeTimeline() with timeline.json, or with its newest batches.
"use strict";

// The time without batches in a long run takes this share of the chart.
const CUT_WIDTH = 0.04;

// Places of moments on the axis of the chart: seconds, but the cut is narrow.
function timeScale({ begun_s: begun, ended_s: ended, cut }) {
  if (cut === null) return { parts: [[begun, ended]], to: (time) => time, from: (place) => place };
  const recorded = Math.max(cut.from_s - begun + ended - cut.to_s, 1e-6), width = CUT_WIDTH * recorded, shift = cut.to_s - cut.from_s - width;
  return {
    parts: [[begun, cut.from_s], [cut.to_s, ended]],
    to: (time) => (time <= cut.from_s ? time : time >= cut.to_s ? time - shift : cut.from_s + width * (time - cut.from_s) / (cut.to_s - cut.from_s)),
    from: (place) => (place <= cut.from_s ? place : place >= cut.from_s + width ? place + shift : cut.from_s + (cut.to_s - cut.from_s) * (place - cut.from_s) / width),
  };
}

// A moment with `decimals` of a second: "3.25 s" or "1:05.25".
function momentText(seconds, end, decimals) {
  if (end < 120 || decimals === 0) return end < 120 ? `${seconds.toFixed(decimals)} s` : timeText(seconds, end);
  const whole = Math.floor(seconds + 0.5 * 10 ** -decimals);
  return timeText(whole, end) + Math.max(seconds - whole, 0).toFixed(decimals).slice(1);
}

// Labels of the time axis, also at parts of a second.
function fineTicks(from, to, pixels, width, end) {
  const most = Math.max(pixels / width, 1);
  const step = [1e-5, 1e-4, 1e-3, 1e-2, 0.1].flatMap((unit) => [unit, 2 * unit, 5 * unit]).find((it) => (to - from) / it <= most);
  if (step === undefined) return timeTicks(from, to, pixels, width, end);
  const decimals = Math.ceil(-Math.log10(step) - 1e-9);
  const ticks = [];
  for (let i = Math.ceil(from / step); i * step <= to; ++i) ticks.push({ v: i * step, label: momentText(i * step, end, decimals) });
  return ticks;
}

// A colour with the pattern of a stage, for readers who do not tell the colours apart.
function stagePaint(context, stage, colour, light) {
  const size = 8, tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const paint = tile.getContext("2d");
  paint.fillStyle = colour(COLOURS[stage % COLOURS.length]);
  paint.fillRect(0, 0, size, size);
  paint.fillStyle = light;
  paint.globalAlpha = 0.5;
  const kind = stage % 4;
  if (kind === 1) paint.fillRect(0, 0, 2, size);
  if (kind === 2) paint.fillRect(0, 0, size, 2);
  if (kind === 3) for (const at of [0, 4]) paint.fillRect(at, at, 2, 2);
  return context.createPattern(tile, "repeat");
}

// Each batch as {lane, batch, pictures, view, begin, ends}: seconds; `ends` has one for each stage.
function batchesOf(timeline) {
  return timeline.batches.map(([lane, batch, pictures, view, begin, ...ms]) => {
    let end = begin;
    return { lane, batch, pictures, view, begin, ms, ends: ms.map((length) => (end += length / 1000)) };
  });
}

function timelineTable(timeline, batches) {
  const views = timeline.views.length > 1;
  const heads = ["lane", "batch", "pictures", ...(views ? ["view"] : []), "begin", ...timeline.stages.map((stage) => `${stage} ms`)];
  const end = timeline.ended_s;
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table: the batches of the lanes" },
    el("table", {}, el("caption", {}, "The batches of the lanes, in the order in which they began"),
      el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col", class: "number" }, text)))),
      el("tbody", {}, ...[...batches].sort((a, b) => a.begin - b.begin).map((it) => el("tr", {},
        ...[it.lane, it.batch, it.pictures, ...(views ? [timeline.views[it.view]] : []), momentText(it.begin, end, 3), ...it.ms.map((ms) => ms.toFixed(2))]
          .map((value, i) => el(i === 1 ? "th" : "td", i === 1 ? { scope: "row", class: "number" } : { class: "number" }, String(value))))))));
}

// What the chart shows of a timeline.json. During the run, a lane can have a batch that is not in it yet. So nobody knows
// what a lane did after its last batch (`known`).
function timelineState(timeline) {
  const batches = batchesOf(timeline), { lanes, cut, ended_s: end } = timeline;
  const scale = timeScale(timeline);
  const first = scale.to(timeline.begun_s), last = Math.max(scale.to(end), first + 1e-6);
  const lengthIn = ([from, to], begin, until) => Math.max(Math.min(to, until) - Math.max(from, begin), 0);
  const busy = Array(lanes).fill(0), count = Array(lanes).fill(0), known = Array(lanes).fill(isOver() ? end : timeline.begun_s);
  for (const { lane, begin, ends } of batches) {
    const until = ends[ends.length - 1];
    ++count[lane];
    known[lane] = Math.max(known[lane], until);
    for (const part of scale.parts) busy[lane] += lengthIn(part, begin, until);
  }
  const share = (lane) => busy[lane] / Math.max(scale.parts.reduce((sum, part) => sum + lengthIn(part, timeline.begun_s, known[lane]), 0), 1e-9);
  const facts = busy.map((_, lane) => `lane ${lane}: ${count[lane]} batches${cut ? " shown" : ""}, busy ${Math.round(100 * Math.min(share(lane), 1))} %`);
  const part = (seconds) => momentText(seconds, end, 1);
  const summary = `The lanes from ${part(timeline.begun_s)} to ${part(end)}${cut ? `, without ${part(cut.from_s)} to ${part(cut.to_s)}` : ""}. ${facts.join("; ")}.`;
  return { timeline, batches, cut, end, scale, first, last, known, facts, summary };
}

// Draws the lanes of a timeline.json. update() shows a later one of the same run; while the reader looks at a part of
// the time or at the table, it waits. It is false if the chart cannot show it. `shown` is called with each that is shown.
function makeTimeline(timeline, shown = () => {}) {
  const { stages, lanes, views } = timeline;
  let now = timelineState(timeline), next = null, dragging = false;

  const canvas = el("div", { class: "chart", role: "img", "aria-label": now.summary });
  canvas.style.setProperty("--lanes", lanes);
  const none = "Point at a bar to see its batch.";
  const pointed = el("p", { class: "muted below", "aria-hidden": "true" }, none);
  const names = [...stages, "no batch: the lane was starved"];
  const swatches = names.map(() => el("canvas", { class: "swatch", width: "26", height: "14", "aria-hidden": "true" }));
  const table = el("details", {}, el("summary", {}, "Table", el("span", { class: "hidden" }, " of the batches of the lanes")));
  table.addEventListener("toggle", () => {
    while (table.children.length > 1) table.lastChild.remove();
    if (table.open) table.append(timelineTable(now.timeline, now.batches));
    else showNext();
  });
  const legend = el("ul", { class: "legend" });
  const showFacts = () => legend.replaceChildren(...now.facts.slice(0, 16).map((fact) => el("li", {}, fact)),
    ...(lanes > 16 ? [el("li", {}, `and ${lanes - 16} more lanes`)] : []));
  showFacts();
  const showNext = () => {
    if (next === null || zoom.now !== null || table.open || dragging) return;
    now = timelineState(next);
    next = null;
    showFacts();
    shown(now.timeline);
    canvas.setAttribute("aria-label", now.summary);
    figure.graph?.updateOptions({ file: [[now.first, 0], [now.last, 0]], dateWindow: [now.first, now.last], valueRange: [0, lanes], axes: { x: { axisLabelWidth: wide() } } });
  };
  const wide = () => (now.end < 120 ? 5.5 : 8.5) * 0.8 * parseFloat(getComputedStyle(document.documentElement).fontSize);
  const figure = el("figure", { class: "timeline" }, el("figcaption", {}, el("h3", {}, "Lanes"), el("span", {}, "one row a lane")), canvas, pointed,
    el("ul", { class: "key" }, ...names.map((name, i) => el("li", {}, swatches[i], name))),
    legend, table);

  // In the cut is nothing to see: there, Zoom in shows what is before it.
  const middleOf = (from, to) => {
    const middle = (from + to) / 2, { cut, scale } = now;
    return cut && middle > scale.to(cut.from_s) && middle < scale.to(cut.to_s) ? cut.from_s - (to - from) / 4 : middle;
  };
  const zoom = makeZoom({ label: "Part of the time that the timeline shows", whole: "The timeline shows the whole time.", span: () => [now.first, now.last], deepest: 20000, middleOf }, (from, to) => {
    figure.graph.updateOptions({ dateWindow: [from, to], valueRange: [0, lanes] });
    if (zoom.now === null) showNext();
    const { scale, end } = now;
    return `The timeline shows ${momentText(scale.from(from), end, 3)} to ${momentText(scale.from(to), end, 3)}.`;
  });
  figure.prepend(zoom.tools);

  // The bars, instead of the lines that dygraphs draws.
  const paintBars = (graph, context, area, style) => {
    const { batches, cut, scale, known } = now;
    const colour = (name) => style.getPropertyValue(name).trim();
    const x = (time) => graph.toDomXCoord(scale.to(time));
    const high = area.h / lanes, space = Math.min(0.12 * high, 4);
    const fill = (lane, from, to, paint) => {
      const left = Math.max(x(from), area.x), right = Math.min(x(to), area.x + area.w);
      if (right <= left) return;
      context.fillStyle = paint;
      context.fillRect(left, area.y + lane * high + space, right - left, high - 2 * space);
    };
    for (let lane = 0; lane < lanes; ++lane) for (const [from, to] of scale.parts) fill(lane, from, Math.min(to, known[lane]), colour("--starved"));
    const paints = stages.map((_, stage) => stagePaint(context, stage, colour, colour("--card")));
    for (const { lane, begin, ends } of batches) {
      ends.forEach((until, stage) => {
        for (const [from, to] of scale.parts) fill(lane, Math.max(stage === 0 ? begin : ends[stage - 1], from), Math.min(until, to), paints[stage]);
      });
    }
    if (cut === null) return;
    const left = x(cut.from_s), right = x(cut.to_s);
    if (right < area.x || left > area.x + area.w) return;
    context.strokeStyle = colour("--edge");
    context.setLineDash([4, 4]);
    context.strokeRect(left, area.y + 0.5, right - left, area.h - 1);
    context.setLineDash([]);
  };

  // The batch at a place of the screen, in words.
  const at = (event) => {
    const { batches, cut, scale, end } = now;
    const [left, top] = figure.graph.eventToDomCoords(event), area = figure.graph.getArea();
    const time = scale.from(figure.graph.toDataXCoord(left)), lane = Math.floor((top - area.y) / area.h * lanes);
    if (left < area.x || left > area.x + area.w || lane < 0 || lane >= lanes) return none;
    if (cut && time > cut.from_s && time < cut.to_s) return `${cut.batches.toLocaleString("en")} batches are left out here.`;
    const found = batches.find((it) => it.lane === lane && it.begin <= time && time < it.ends[it.ends.length - 1]);
    if (!found) return time > now.known[lane] ? none : `lane ${lane} had no batch at ${momentText(time, end, 3)}`;
    const stage = found.ends.findIndex((until) => time < until);
    return `lane ${lane}, batch ${found.batch}${views.length > 1 ? ` of ${views[found.view]}` : ""}, ${found.pictures === 1 ? "1 picture" : `${found.pictures} pictures`}: ` +
      `${stages[stage]} took ${found.ms[stage].toFixed(2)} ms, until ${momentText(found.ends[stage], end, 3)}`;
  };
  canvas.addEventListener("mousemove", (event) => { pointed.textContent = at(event); });
  canvas.addEventListener("mousedown", () => {
    dragging = true;
    addEventListener("mouseup", () => setTimeout(() => { dragging = false; showNext(); }), { once: true });
  });
  canvas.addEventListener("mouseleave", () => { pointed.textContent = none; });

  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const letters = 0.8 * parseFloat(style.fontSize);
    swatches.forEach((swatch, i) => {
      const context = swatch.getContext("2d");
      context.fillStyle = i < stages.length ? stagePaint(context, i, colour, colour("--card")) : colour("--starved");
      context.fillRect(0, 0, swatch.width, swatch.height);
    });
    const axes = { axisLineColor: colour("--line"), gridLineColor: colour("--grid") };
    if (figure.graph) {
      figure.graph.updateOptions(axes);
      figure.graph.resize();
      return;
    }
    const ticks = (from, to, pixels) => now.scale.parts.flatMap(([begin, until]) => {
      const { scale, end } = now;
      const left = Math.max(scale.from(from), begin), right = Math.min(scale.from(to), until);
      if (right <= left) return [];
      return fineTicks(left, right, pixels * (scale.to(right) - scale.to(left)) / (to - from), 1.15 * wide(), end).map(({ v, label }) => ({ v: scale.to(v), label }));
    });
    const labels = (_from, _to, pixels) => {
      const step = Math.ceil(lanes * 1.3 * letters / pixels);
      return Array.from({ length: Math.ceil(lanes / step) }, (_, i) => ({ v: lanes - i * step - 0.5, label: `lane ${i * step}` }));
    };
    figure.graph = new Dygraph(canvas, [[now.first, 0], [now.last, 0]], {
      labels: ["time", "lanes"], ...axes, dateWindow: [now.first, now.last], valueRange: [0, lanes], animatedZooms: false, axisLabelFontSize: letters,
      highlightCircleSize: 0, xRangePad: 0,
      plotter: ({ dygraph, drawingContext, plotArea }) => paintBars(dygraph, drawingContext, plotArea, getComputedStyle(document.documentElement)),
      axes: { x: { ticker: ticks, drawGrid: false, axisLabelWidth: wide() }, y: { ticker: labels, drawGrid: false, axisLabelWidth: 4.2 * letters } },
      zoomCallback: (from, to) => zoom.show(from, to),
    });
  };
  const update = (later) => {
    if (later.lanes !== lanes || later.stages.join() !== stages.join() || later.views.join() !== views.join()) return false;
    next = later;
    showNext();
    return true;
  };
  return { figure, draw, update, remove: () => figure.graph?.destroy() };
}
