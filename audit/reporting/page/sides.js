// Two runs beside each other around the first place where they differ: lanes that move together, and
// the batches of the steps around it.

const AROUND = 28; // steps that the lanes show to begin with
const BEFORE = 4; // rows of the table before the difference, and after it
const AFTER = 8;

class Sides {
  constructor(host, runs) {
    this.runs = runs;
    const step = Number(host.dataset.step);
    const request = host.dataset.request;
    const voice = byId("lane-voice");
    this.twins = [...host.querySelectorAll(".twin")].map((place, i) => {
      const view = new View(runs[i]);
      const lanes = new Lanes(place.querySelector(".lanes"), view, voice);
      const at = runs[i].columnOf(step);
      view.setRange(at - AROUND / 2, at + AROUND / 2);
      view.setCursor(at, { reveal: false });
      lanes.load();
      lanes.only(alive(runs[i], step));
      view.request = runs[i].requestNames.indexOf(request);
      lanes.goTo(view.request);
      return { view, lanes, axis: place.querySelector(".axis canvas") };
    });
    this.step = step;
    this.redraw = onceAFrame(() => this.draw());
    for (const { view } of this.twins) {
      view.addEventListener("change", () => {
        this.follow(view);
        this.redraw();
      });
    }
    this.fillTable();
  }

  // The other run shows the same steps.
  follow(led) {
    if (this.isFollowing) return;
    this.isFollowing = true;
    for (const { view } of this.twins) {
      if (view === led) continue;
      const columnOf = (column) =>
        view.run.columnOf(led.run.steps.step[Math.round(column)] ?? Infinity);
      const from = columnOf(led.from);
      view.setRange(from, from + led.span);
      view.setCursor(columnOf(led.cursor), { reveal: false });
    }
    this.isFollowing = false;
  }

  draw() {
    for (const { view, lanes, axis } of this.twins) {
      drawAxis(axis, view);
      lanes.draw();
    }
  }

  fillTable() {
    const steps = new Set();
    for (const run of this.runs) {
      const at = run.columnOf(this.step);
      for (let c = Math.max(0, at - BEFORE); c <= Math.min(run.columns - 1, at + AFTER); c += 1) {
        steps.add(run.steps.step[c]);
      }
    }
    const rows = [...steps]
      .sort((a, b) => a - b)
      .map((step) => {
        const [a, b] = this.runs.map((run) => batchesIn(run, step));
        const row = element(
          "tr",
          a === b ? {} : { class: "differs" },
          element("td", { class: "number" }, shownNumber(step)),
          element("td"),
          element("td", {}, a),
          element("td", {}, b),
        );
        if (a !== b)
          row.children[1].append(
            element("span", { "aria-hidden": "true" }, "≠"),
            element("span", { class: "voice" }, "differs"),
          );
        if (step === this.step) row.setAttribute("aria-current", "true");
        return row;
      });
    byId("around").replaceChildren(...rows);
  }
}

// The requests that a run has around a step.
function alive(run, step) {
  const at = run.columnOf(step);
  return (request) => {
    const { submitted, ended } = run.requests;
    const until = ended[request] < 0 ? run.columns : ended[request];
    return submitted[request] <= at + AROUND / 2 && until >= at - AROUND / 2;
  };
}

// A step's batches with who is in them, as text.
function batchesIn(run, step) {
  const column = run.columnOf(step);
  if (run.steps.step[column] !== step) return "no such step";
  const told = run.batchesAt(column).map((batch) => {
    const byWork = new Map();
    for (const place of run.rowsOf(batch)) {
      const work = run.names[run.rows.work[place]];
      const tokens = run.rows.count[place] > 1 ? ` (${run.rows.count[place]} tokens)` : "";
      const names = byWork.get(work) ?? [];
      byWork.set(work, [...names, run.requestNames[run.rows.request[place]] + tokens]);
    }
    return [...byWork].map(([work, names]) => `${work}: ${names.join(", ")}`).join("; ");
  });
  return told.join(" | ") || "no batch";
}
