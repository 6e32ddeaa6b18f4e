// Puts the page together. `report` is there for whoever opens the browser's console.

const byId = (id) => document.getElementById(id);

function start(runs) {
  tooltip.element = byId("tooltip");
  const view = new View(runs[0]);
  const chartHost = byId("charts");
  const batchHost = byId("batch-charts");
  const charts = [
    ...CHARTS.map((chart) => new Chart(chartHost, view, chart)),
    ...BATCH_CHARTS.map((chart) => new Chart(batchHost, view, chart)),
  ];
  const lanes = new Lanes(byId("lanes"), view, byId("lane-voice"));
  const life = new Life(byId("life"), view, lanes);
  const choose = (request) => {
    view.choose(request);
    lanes.goTo(request);
  };
  const panels = {
    step: new StepPanel(view, choose),
    request: new RequestPanel(view),
    requests: new RequestTable(view, (request) => {
      view.setCursor(view.run.requests.submitted[request]);
      choose(request);
      reveal("request-heading");
    }),
    batches: new BatchTable(view, (column) => {
      view.setCursor(column);
      reveal("step-heading");
    }),
  };
  const twins = document.querySelector(".twins");
  const sides = twins && new Sides(twins, runs);
  const page = { view, charts, lanes, life, panels, sides };
  const redraw = onceAFrame(() => drawAll(page));
  page.redraw = redraw;
  view.addEventListener("change", redraw);
  new ResizeObserver(redraw).observe(byId("over-time"));
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", () => drawAll(page));
  }
  controls(page, runs);
  showRun(page, runs, 0);
  document.documentElement.dataset.ready = "true";
  return page;
}

// Go to a heading, with what reads the page aloud.
function reveal(id) {
  byId(id).scrollIntoView({ block: "nearest" });
  byId(id).focus({ preventScroll: true });
}

function onceAFrame(work) {
  let isAsked = false;
  return () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => {
      isAsked = false;
      work();
    });
  };
}

function drawAll(page) {
  const { view, charts, lanes, life, panels, sides } = page;
  drawAxis(byId("axis"), view);
  for (const chart of charts) chart.draw();
  lanes.draw();
  life.draw();
  sides?.draw();
  const { run } = view;
  const chosen = [run.run_id, run.requests.length, run.columns, view.cursor, view.request].join();
  if (page.chosen !== chosen) {
    for (const panel of Object.values(panels)) panel.draw();
    page.chosen = chosen;
  }
  const stepAt = (column) =>
    run.steps.step[Math.min(run.columns - 1, Math.max(0, Math.round(column)))];
  if (!run.columns) return;
  for (const [id, value] of [
    ["from", stepAt(view.from)],
    ["to", stepAt(view.to - 1)],
    ["at", stepAt(view.cursor)],
  ]) {
    if (document.activeElement !== byId(id)) byId(id).value = value;
  }
}

// ---- controls ------------------------------------------------------------------------------------

function controls(page, runs) {
  const { view } = page;
  const press = (id, work) => byId(id).addEventListener("click", work);
  press("zoom-in", () => view.zoom(0.5, shareOf(view)));
  press("zoom-out", () => view.zoom(2, shareOf(view)));
  press("pan-left", () => view.pan(-0.5));
  press("pan-right", () => view.pan(0.5));
  press("zoom-all", () => view.setRange(0, view.run.columns));
  const columnIn = (id) => view.run.columnOf(Number(byId(id).value));
  const setRange = () => view.setRange(columnIn("from"), columnIn("to") + 1);
  byId("from").addEventListener("change", setRange);
  byId("to").addEventListener("change", setRange);
  byId("at").addEventListener("change", () => view.setCursor(columnIn("at")));
  const filter = () => {
    page.lanes.filter(byId("filter").value, byId("sort").value);
    page.panels.requests.show(page.lanes.shown);
    byId("filter-count").textContent =
      `${shownNumber(page.lanes.shown.length)} of ${counted(view.run.requests.length, "request")}`;
    page.redraw();
  };
  page.filter = filter;
  byId("filter").addEventListener("input", filter);
  byId("sort").addEventListener("change", filter);
  for (const button of document.querySelectorAll("[data-finding]")) {
    button.addEventListener("click", () => {
      const finding = view.run.findings[Number(button.dataset.finding)];
      showFinding(page, finding);
    });
  }
  for (const radio of document.querySelectorAll("[name=run]")) {
    radio.addEventListener("change", () => showRun(page, runs, Number(radio.value)));
  }
  for (const button of document.querySelectorAll("[data-go]")) {
    button.addEventListener("click", () => goTo(page, runs, button.dataset));
  }
}

function showFinding(page, finding) {
  byId("filter").value = "";
  byId("sort").value = "all";
  page.filter();
  page.view.goTo(finding.column, finding.request ?? -1);
  if (finding.request !== null) page.lanes.goTo(finding.request);
  byId("over-time").scrollIntoView();
  byId("lanes").focus({ preventScroll: true });
}

// Show one of two runs everywhere.
function showRun(page, runs, number) {
  for (const part of document.querySelectorAll("[data-run]")) {
    part.hidden = Number(part.dataset.run) !== number;
  }
  const run = runs[number];
  page.chosen = "";
  page.view.show(run);
  for (const chart of page.charts) chart.load();
  page.lanes.load();
  page.filter();
  const used = new Set(run.lanes.kind);
  for (const item of document.querySelectorAll("[data-kind]")) {
    item.hidden = !used.has(Number(item.dataset.kind));
  }
  drawAll(page);
}

// To a step (and a request) of one of two runs.
function goTo(page, runs, { go, step, request }) {
  const number = Number(go);
  const radio = document.querySelector(`[name=run][value="${number}"]`);
  if (radio && !radio.checked) {
    radio.checked = true;
    showRun(page, runs, number);
  }
  const { run } = page.view;
  showFinding(page, {
    column: run.columnOf(Number(step)),
    request: request === "" ? null : run.requestNames.indexOf(request),
  });
}

const packed = JSON.parse(byId("data").textContent);
byId("data").remove();
const loaded = await Promise.all(packed.map((run) => Run.from(run)));
globalThis.report = { runs: loaded, page: start(loaded) };
