// Follows a run: asks the server of this page for each new state, and shows it with the functions of report.js.

// --- Redrawing: elements stay, so that scroll positions, focus and opened details stay.

// Makes `old` equal to `next`, which is lost. Details keep what the reader opened.
function morph(old, next) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes])
    if (!next.hasAttribute(name) && name !== "open" && name !== "style") old.removeAttribute(name);
  for (const { name, value } of next.attributes)
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  // The content policy forbids the attribute, but not this.
  if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
  const wanted = [...next.childNodes];
  wanted.forEach((child, i) => {
    const mine = old.childNodes[i];
    if (!mine) old.append(child);
    else if (mine.nodeName === child.nodeName) morph(mine, child);
    else mine.replaceWith(child);
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

// The parts of `parent` that are shown, by name. A part that is `kept` has an element that updates itself.
const shownParts = new Map();
function showParts(parent, parts) {
  for (const [name, element] of shownParts) {
    if (parts.some((part) => part.name === name)) continue;
    element.remove();
    shownParts.delete(name);
  }
  let before = null;
  for (const { name, element, kept } of parts) {
    const old = shownParts.get(name);
    if (old && !kept) morph(old, element);
    else if (old && old !== element) old.replaceWith(element);
    const now = old && !kept ? old : element;
    const place = before === null ? parent.firstChild : before.nextSibling;
    if (now !== place) parent.insertBefore(now, place);
    shownParts.set(name, now);
    before = now;
  }
}

// --- The progress

let lost = false;

// A number of `progress`. The attribute names it, so a program can compare page and /status.json.
function progressNumber(key, format) {
  const value = data.progress[key];
  if (value === null) return el("span", { class: "muted" }, "not known");
  return el("data", { value: String(value), "data-progress": key }, FORMATS[format](value));
}

const reportFile = () => (data.attempt ? [" Its report is in ", el("code", {}, `${data.attempt}/report.html`), "."] : []);

function stateText() {
  if (lost) return ["The page cannot reach the run, and tries again. If the run has ended, this URL may not be valid any more.", ...reportFile()];
  if (data.state === "starting") return ["The run starts."];
  if (data.state === "finished") return ["The run has finished.", ...reportFile()];
  if (data.state === "stopped") return ["The run was stopped.", ...reportFile()];
  if (data.state === "failed") return [`The run failed: ${data.error}`];
  if (data.completing) return ["The pipeline has ended. The run completes its files."];
  return ["The run is in progress."];
}

function progressPart() {
  const content = [el("p", { class: "state" }, ...stateText())];
  const it = data.progress;
  if (it) {
    const known = it.planned > 0 && it.plan_complete;
    content.push(el("progress", { "aria-label": "Finished pictures", max: "1", ...(known ? { value: String(it.done / it.planned) } : {}) }),
      el("dl", { class: "tiles" },
        tile("finished pictures", progressNumber("done", "count"), " ", el("small", {}, "of ", progressNumber("planned", "count"), it.plan_complete ? "" : " known so far")),
        tile("pictures per second in the last 10 s", progressNumber("pictures_per_s", "rate")),
        ...(it.windows_in_work === null ? [] : [
          tile("windows of the pictures that are computed now", progressNumber("windows_done", "count"), " ", el("small", {}, "of ", progressNumber("windows_in_work", "count"))),
          tile("windows per second in the last 10 s", progressNumber("windows_per_s", "tenths"))]),
        tile("time left", progressNumber("left_s", "seconds")),
        tile("pictures in the pipeline", progressNumber("in_flight", "count")),
        tile("busiest stage in the last 10 s", it.busiest ?? el("span", { class: "muted" }, "not known"))));
  }
  return el("div", { class: `progress ${lost ? "lost" : data.state}`, role: "group", "aria-label": "Progress of the run" }, ...content);
}

// --- The page

// Screen readers hear the verdict and the state when they change, and not each figure.
const announcer = el("p", { class: "hidden", "aria-live": "polite" });
const headline = el("p", { class: "muted" });
// The sections that update themselves, and the attempt that they show.
const own = { lanes: { make: timelineSection, made: null, of: "" }, charts: { make: chartSections, made: null, of: "" } };

// Adds these sections to the parts. Returns those that are new: draw() them when they are on the page.
function addOwn(name, parts) {
  const it = own[name];
  const fresh = it.made === null || it.of !== report.run || !it.made.update();
  if (fresh) {
    it.made?.remove();
    it.made = it.make();
    it.of = report.run;
  }
  it.made.parts.forEach((element, i) => parts.push({ name: `${name}${i}`, element, kept: true }));
  return fresh ? [it.made] : [];
}

function show() {
  const parts = [{ name: "progress", element: progressPart() }];
  const add = (name, elements) => elements.forEach((element, i) => parts.push({ name: name + i, element }));
  if (report) {
    add("verdict", [verdictSection(), el("h2", { class: "mean" }, isOver() ? "The whole run" : "The run so far"), tiles()]);
    add("changes", whatIfSection());
    add("stages", stageSection());
    add("views", viewSection());
    const fresh = [...addOwn("lanes", parts), ...addOwn("charts", parts)];
    add("gpus", gpuSection());
    add("errors", errorSection());
    add("notes", noteSection());
    add("settings", settingsSection());
    showParts(main, parts);
    for (const made of fresh) made.draw();
    const about = el("div", {}, ...aboutSection());
    if (footer.firstElementChild) morph(footer.firstElementChild, about);
    else footer.append(about);
  } else {
    showParts(main, parts);
  }
  showTitle();
  const attempt = report?.run ?? "";
  headline.textContent = `Millrace run${attempt ? `, attempt ${attempt}` : ""}`;
  const said = [main.querySelector("h1")?.textContent ?? "", lost || isOver() ? main.querySelector(".state").textContent : ""].filter((text) => text !== "").join(". ");
  if (announcer.textContent !== said) announcer.textContent = said;
}

// A hidden tab has a title, too.
function showTitle() {
  document.title = `${{ starting: "Starting", running: data.progress && data.progress.plan_complete && data.progress.planned > 0 ? `${Math.floor(100 * data.progress.done / data.progress.planned)} %` : "Running", finished: "Finished", stopped: "Stopped", failed: "Failed" }[data.state]} - Millrace run ${report?.run ?? ""}`;
}

// Shows a state of the run. In a hidden tab it is only kept.
function update(next) {
  lost = false;
  load(next);
  if (document.hidden) showTitle();
  else show();
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) show(); });

// The server answers when there is a state after the one that is shown. It ends with the run.
async function follow() {
  const token = new URLSearchParams(location.search).get("token");
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const longest = 30_000;  // ms
  for (let pause = 1000; !isOver();) {
    let next = null;
    try {
      const response = await fetch(`status.json?after=${data.version}`, { headers, cache: "no-store", signal: AbortSignal.timeout(longest) });
      if (response.ok) next = await response.json();
    } catch {
      // The server is gone, or the network.
    }
    if (next) {
      try {
        update(next);
      } catch (error) {
        console.error(error);  // the next state may be shown
      }
      pause = 1000;
      continue;
    }
    lost = true;
    show();
    await new Promise((wake) => setTimeout(wake, pause));
    pause = Math.min(2 * pause, longest);
  }
}

drawAgain(() => Object.values(own).forEach(({ made }) => made?.draw()));
header.append(skipLink(), headline, announcer);
for (const part of [header, main, footer]) part.hidden = false;
show();
follow();
