"use strict";
// Charts, filters and the metrics of each run. Text from runs only ever becomes textContent.
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const COLOURS = 8;

function element(name, parent, attributes = {}, text) {
  const svg = ["svg", "g", "line", "path", "text", "circle", "rect"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found;
}

function short(value, thousand = 1e4) {
  const size = Math.abs(value);
  if (size >= 1e6) return +(value / 1e6).toPrecision(3) + "M";
  if (size >= thousand) return +(value / 1e3).toPrecision(3) + "K";
  return String(+value.toPrecision(4));
}

// series: [{label, colour, x, mean, low?, high?, count?}]; levels: [{label, colour, value}].
function chart(place, { series, levels = [], height = 210, clock = "" }) {
  place.replaceChildren();
  const width = Math.max(place.clientWidth, 160), left = 46, right = 8, top = 8, bottom = clock ? 30 : 18;
  const all = (name) => series.flatMap((one) => one[name] ?? one.mean);
  const xs = series.flatMap((one) => one.x), ys = [...all("low"), ...all("high"), ...levels.map((one) => one.value)];
  let [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
  if (y0 === y1) [y0, y1] = [y0 - 1, y1 + 1];
  const pad = 0.05 * (y1 - y0);
  [y0, y1] = [y0 - pad, y1 + pad];
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const py = (y) => top + ((y1 - y) / (y1 - y0)) * (height - top - bottom);
  const svg = element("svg", place, { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.setAttribute("aria-label", series.map((one) => one.label).join(", "));
  for (const y of ticks(y0, y1, 4)) {
    element("line", svg, { class: "grid", x1: left, x2: width - right, y1: py(y), y2: py(y) });
    element("text", svg, { x: left - 6, y: py(y) + 4, "text-anchor": "end" }, short(y));
  }
  for (const x of ticks(x0, x1, Math.max(2, width / 110))) {
    element("text", svg, { x: px(x), y: height - bottom + 13, "text-anchor": "middle" }, short(x, 1e3));
  }
  if (clock) element("text", svg, { x: width - right, y: height - 3, "text-anchor": "end" }, clock);
  for (const one of levels) {
    const at = { x1: left, x2: width - right, y1: py(one.value), y2: py(one.value) };
    element("line", svg, { ...at, stroke: one.colour, "stroke-dasharray": "5 4", opacity: 0.75, class: "level" });
  }
  for (const one of series) {
    const line = (name) => one.x.map((x, i) => `${px(x).toFixed(1)},${py(one[name][i]).toFixed(1)}`);
    if (one.low) {
      const band = [...line("high"), ...line("low").reverse()];
      element("path", svg, { d: `M${band.join("L")}Z`, fill: one.colour, opacity: 0.16 });
    }
    element("path", svg, { d: `M${line("mean").join("L")}`, fill: "none", stroke: one.colour, "stroke-width": 1.8, class: "mean" });
    if (one.x.length < 3) {
      one.x.forEach((x, i) => element("circle", svg, { cx: px(x), cy: py(one.mean[i]), r: 2.6, fill: one.colour }));
    }
  }
  hover(svg, series, { width, height, left, right, top, bottom, x0, x1, px, py, clock });
}

function hover(svg, series, at) {
  const marks = element("g", svg, { hidden: "" });
  const steps = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = at.x0 + (((event.clientX - box.left) * at.width) / box.width - at.left) * ((at.x1 - at.x0) / (at.width - at.left - at.right));
    const step = steps.reduce((best, each) => (Math.abs(each - x) < Math.abs(best - x) ? each : best));
    marks.replaceChildren();
    marks.removeAttribute("hidden");
    element("line", marks, { class: "cursor", x1: at.px(step), x2: at.px(step), y1: at.top, y2: at.height - at.bottom });
    tip.replaceChildren();
    element("div", tip, {}, `${short(step, 1e3)} ${at.clock}`);
    for (const one of series) {
      const i = one.x.indexOf(step);
      if (i < 0) continue;
      element("circle", marks, { cx: at.px(step), cy: at.py(one.mean[i]), r: 3, fill: one.colour });
      const range = one.low && one.low[i] !== one.high[i] ? ` (${short(one.low[i])} to ${short(one.high[i])})` : "";
      const seeds = one.count ? `, ${one.count[i]} seed${one.count[i] === 1 ? "" : "s"}` : "";
      element("div", tip, {}, `${one.label}: ${short(one.mean[i])}${range}${seeds}`);
    }
    tip.hidden = false;
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 4))}px`;
    tip.style.top = `${Math.max(4, event.clientY - high - 12)}px`;
  });
  svg.addEventListener("pointerleave", () => {
    marks.setAttribute("hidden", "");
    marks.replaceChildren();
    tip.hidden = true;
  });
}

function keys(place, entries) {
  const list = element("div", place, { class: "keys" });
  for (const { label, colour } of entries) {
    const key = element("span", list);
    element("i", key).style.background = colour;
    key.append(label);
  }
}

// One colour for each configuration, the same in every panel.
const labels = [...new Set(data.curves.flatMap((panel) => panel.series.map((one) => one.label)))].sort();
const colour = (index) => `var(--c${index % COLOURS})`;

function chosen(name) {
  const boxes = [...document.querySelectorAll(`#filters input[name="${name}"]`)];
  const checked = boxes.filter((box) => box.checked).map((box) => box.value);
  return new Set(checked.length ? checked : boxes.map((box) => box.value)); // none asks for all
}

function drawCurves(tasks, agents) {
  const place = document.getElementById("charts");
  place.replaceChildren();
  for (const panel of data.curves) {
    const series = panel.series.filter((one) => agents.has(one.agent));
    if (!tasks.has(panel.task) || !series.length) continue;
    for (const one of series) one.colour = colour(labels.indexOf(one.label));
    const byAgent = new Map(series.map((one) => [one.agent, one.colour]));
    const levels = panel.published.filter((one) => byAgent.has(one.agent)).map((one) => ({ ...one, colour: byAgent.get(one.agent) }));
    const box = element("div", place, { class: "panel", "data-task": panel.task });
    element("h3", box, {}, panel.title);
    keys(box, series);
    chart(element("div", box), { series, levels, clock: panel.clock });
  }
  if (!place.children.length) element("p", place, { class: "lead" }, "There is no evaluation to draw.");
}

function drawProfiles() {
  for (const place of document.querySelectorAll("[data-profile]")) {
    const profile = data.profiles[place.dataset.profile];
    const series = profile.series.map((one, i) => ({ ...one, x: profile.x, colour: colour(i) }));
    place.replaceChildren();
    element("h3", place, {}, "Share of runs above a normalised score");
    keys(place, series);
    chart(element("div", place), { series, clock: "normalised score" });
  }
}

function drawMetrics(run) {
  const place = run.querySelector(".metrics");
  place.replaceChildren();
  for (const { x, y } of data.runs[place.dataset.run] ?? []) {
    for (const [name, mean] of Object.entries(y)) {
      const box = element("div", place);
      element("h4", box, {}, name);
      chart(element("div", box), { series: [{ label: name, colour: colour(2), x, mean }], height: 110 });
    }
  }
}

function filter() {
  const tasks = chosen("task"), agents = chosen("agent");
  const known = { task: chosen.all("task"), agent: chosen.all("agent") };
  for (const marked of document.querySelectorAll("tr[data-task], tbody[data-task], details[data-task]")) {
    const { task, agent } = marked.dataset;
    // A row of a table stays unless a task that was run is what it lacks.
    const narrowed = tasks.size < known.task.size;
    marked.hidden = (narrowed && !tasks.has(task)) || (agent !== undefined && !agents.has(agent));
  }
  const runs = [...document.querySelectorAll("details.run")];
  const left = runs.filter((run) => !run.hidden).length;
  document.getElementById("shown").textContent = `${left} of ${runs.length} runs shown`;
  drawCurves(tasks, agents);
}
chosen.all = (name) => new Set([...document.querySelectorAll(`#filters input[name="${name}"]`)].map((box) => box.value));

function reveal() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.matches("details")) {
    target.open = true;
    target.scrollIntoView();
  }
}

document.getElementById("filters").addEventListener("change", filter);
for (const run of document.querySelectorAll("details.run")) {
  run.addEventListener("toggle", () => run.open && drawMetrics(run));
}
addEventListener("hashchange", reveal);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return; // a phone's bars come and go
  width = innerWidth;
  filter();
  drawProfiles();
  document.querySelectorAll("details.run[open]").forEach(drawMetrics);
});
filter();
drawProfiles();
reveal();
