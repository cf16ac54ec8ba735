"use strict";
// Okabe and Ito's palette, which the colour blind can tell apart, then again in dashes.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"];
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const WIDTH = 460, HEIGHT = 210, LEFT = 58, BOTTOM = 24, TOP = 12, RIGHT = 8;
const EVERY = 1000; // milliseconds between two looks
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...inner) {
  const svg = ["svg", "path", "line", "text", "circle"].includes(name);
  const made = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inner); // texts stay texts, whatever they hold
  return made;
}

function number(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size >= 1000 && size < 1e6) return Math.round(value).toLocaleString("en-GB");
  return size >= 100 && size < 1000 ? value.toFixed(1) : String(Number(value.toPrecision(3)));
}

function thousands(value) {
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  return Math.abs(value) >= 1e3 ? `${+(value / 1e3).toPrecision(3)}K` : String(+value.toPrecision(3));
}

function duration(seconds) {
  if (seconds === null) return "";
  const whole = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return (hours ? `${hours}:${two(minutes)}` : `${minutes}`) + `:${two(whole % 60)}`;
}

// Round numbers from low to high, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(at);
  return found;
}

function chart(measure, runs) {
  const curves = runs.filter((run) => run.series[measure]);
  const values = curves.flatMap((run) => run.series[measure][1]);
  const last = Math.max(1, ...curves.map((run) => run.series[measure][0].at(-1)));
  let low = Math.min(...values), high = Math.max(...values);
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const x = (step) => LEFT + (step / last) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  svg.setAttribute("aria-label", `${measure} against steps`);
  for (const at of ticks(low, high, 4)) {
    svg.append(element("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(at), y2: y(at) }));
    svg.append(element("text", { x: LEFT - 6, y: y(at) + 4, "text-anchor": "end" }, thousands(at)));
  }
  for (const at of ticks(0, last, 5)) {
    svg.append(element("text", { x: x(at), y: HEIGHT - 6, "text-anchor": "middle" }, thousands(at)));
  }
  for (const run of curves) draw(svg, run, run.series[measure], x, y);
  const title = measure === "return" ? "training return" : measure;
  return element("figure", { "data-measure": measure }, element("figcaption", {}, title), svg);
}

function draw(svg, run, [steps, values], x, y) {
  const points = steps.map((step, i) => `${x(step).toFixed(1)},${y(values[i]).toFixed(1)}`);
  const look = { stroke: run.colour, "stroke-dasharray": run.dashes };
  const path = element("path", { class: "curve", d: `M${points.join("L")}`, ...look });
  path.append(element("title", {}, `${run.name}: ${number(values.at(-1))}`));
  svg.append(path);
  const end = { cx: x(steps.at(-1)), cy: y(values.at(-1)), r: 2.6, fill: run.colour };
  svg.append(element("circle", end));
}

function line(run) {
  const last = (measure) => number(run.series[measure]?.[1].at(-1));
  const steps = run.steps === null ? number(run.step) : `${number(run.step)} of ${number(run.steps)}`;
  const key = element("span", { class: "key" });
  key.style.background = run.colour;
  const first = element("td", { title: run.path }, key, run.name);
  const state = element("td", { class: run.state }, run.state);
  const rate = run.rate ? number(run.rate) : "";
  const others = [steps, rate, duration(run.left), last("evaluation"), last("return")];
  return element("tr", {}, first, state, ...others.map((text) => element("td", {}, text)));
}

function show(runs) {
  const counts = {}; // colours begin anew with each task, whose runs share charts
  runs.forEach((run) => {
    const index = (counts[run.task] = (counts[run.task] ?? -1) + 1);
    run.colour = COLOURS[index % COLOURS.length];
    run.dashes = DASHES[Math.floor(index / COLOURS.length) % DASHES.length];
  });
  byId("runs").replaceChildren(...runs.map(line));
  const charts = [], rest = [];
  for (const task of new Set(runs.map((run) => run.task))) {
    const own = runs.filter((run) => run.task === task);
    const there = new Set(own.flatMap((run) => Object.keys(run.series)));
    const first = new Set(["evaluation", "return", ...own.flatMap((run) => run.losses)]);
    const drawn = (wanted) => [...there].filter(wanted).map((measure) => chart(measure, own));
    const section = (figures) => [element("h2", {}, task), element("div", { class: "row" }, ...figures)];
    charts.push(...section(drawn((measure) => first.has(measure))));
    // A hundred charts that nobody looks at would be drawn every second.
    if (byId("more").open) rest.push(...section(drawn((measure) => !first.has(measure))));
  }
  byId("charts").replaceChildren(...charts);
  byId("rest").replaceChildren(...rest);
}

let latest = "";

async function look() {
  try {
    const answer = await fetch("/data");
    if (!answer.ok) throw new Error(answer.status);
    const text = await answer.text();
    if (text !== latest) show(JSON.parse(text).runs);
    latest = text;
    const count = JSON.parse(text).runs.length;
    byId("said").textContent = `${count} run${count === 1 ? "" : "s"}, up to date at ${new Date().toLocaleTimeString("en-GB")}`;
    byId("said").className = "";
  } catch {
    byId("said").textContent = "phimu watch has ended: start it again to go on";
    byId("said").className = "lost";
  }
  setTimeout(look, EVERY);
}

byId("more").addEventListener("toggle", () => latest && show(JSON.parse(latest).runs));
look();
