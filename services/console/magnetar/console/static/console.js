// Keys, and the live charts of a topic. Everything else is plain HTML, or an attribute for htmx.
"use strict";

document.addEventListener("keydown", (event) => {
  const at = event.target;
  const typing = at.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName);
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.getElementById("jump").focus();
  } else if (event.key === "Escape" && typing) {
    at.blur();
  }
});

const KEPT = 300;
// Seconds that a chart shows at least.
const SHOWN_S = 60;

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function size(element) {
  return { width: Math.max(240, element.clientWidth - 12), height: 180 };
}

function chart(element, title, labels) {
  const colors = [color("--accent"), color("--danger")];
  const axis = { stroke: color("--muted"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
  const plot = new uPlot(
    {
      ...size(element),
      title: title,
      legend: { live: true },
      axes: [axis, { ...axis, size: 60 }],
      series: [{}, ...labels.map((label, i) => ({ label: label, stroke: colors[i], width: 2 }))],
      scales: {
        x: { range: (_, low, high) => (low === null ? [null, null] : [Math.min(low, high - SHOWN_S), high]) },
        y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] },
      },
    },
    [[], ...labels.map(() => [])],
    element
  );
  new ResizeObserver(() => plot.setSize(size(element))).observe(element);
  return plot;
}

function live(element) {
  const plots = [
    chart(document.getElementById("rate-chart"), "Messages per second", ["in", "out"]),
    chart(document.getElementById("backlog-chart"), "Backlog, entries", ["backlog"]),
  ];
  const columns = [[], [], [], []];
  const told = document.getElementById("live-told");
  let before = null;
  const source = new EventSource(element.dataset.live);
  source.onmessage = (event) => {
    const now = JSON.parse(event.data);
    if (now.problem) {
      told.textContent = now.problem;
      before = null;
      return;
    }
    const seconds = before === null ? 0 : now.time - before.time;
    if (seconds > 0) {
      const rate = (name) => Math.max(0, now[name] - before[name]) / seconds;
      const row = [now.time, rate("in"), rate("out"), now.backlog];
      columns.forEach((column, i) => {
        column.push(row[i]);
        if (column.length > KEPT) column.shift();
      });
      plots[0].setData([columns[0], columns[1], columns[2]]);
      plots[1].setData([columns[0], columns[3]]);
      told.textContent = `Now ${row[1].toFixed(1)}/s in, ${row[2].toFixed(1)}/s out, backlog ${row[3]}`;
    }
    before = now;
  };
  source.onerror = () => {
    told.textContent = "The console does not answer; trying again.";
    before = null;
  };
}

const element = document.querySelector("[data-live]");
if (element !== null) live(element);

function wire(root) {
  for (const button of root.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.onclick = async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
      button.textContent = "Copied";
    };
  }
}
wire(document);

function search(button) {
  const told = document.getElementById("search-told");
  const list = document.getElementById("found");
  let source = null;
  const stop = (text) => {
    source.close();
    source = null;
    button.textContent = "Search again";
    told.append(` ${text}`);
  };
  button.hidden = false;
  button.onclick = () => {
    if (source !== null) return stop("Stopped.");
    list.replaceChildren();
    button.textContent = "Stop";
    let next = "";
    source = new EventSource(button.dataset.search);
    source.onmessage = (event) => {
      const now = JSON.parse(event.data);
      if (now.problem) told.textContent = now.problem;
      if (now.done) {
        stop(next ? "" : "This is the end of the topic.");
        if (next) {
          const link = document.createElement("a");
          link.href = button.dataset.next + next;
          link.textContent = "Go on";
          told.append(link);
        }
        return;
      }
      told.textContent = `${now.looked} looked at, ${now.found} found.`;
      // Made by the console's own template, which escapes what messages have.
      if (now.html) list.insertAdjacentHTML("beforeend", now.html);
      next = now.next;
    };
    source.onerror = () => stop("The console does not answer.");
  };
}
for (const button of document.querySelectorAll("[data-search]")) search(button);
