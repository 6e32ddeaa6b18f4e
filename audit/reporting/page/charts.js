// Numbers per step as stacked areas: slots, waiting, queues, blocks, batches. One slider each: its
// value is the cursor's step, and what it says is what the tooltip shows.

const CHART_HEIGHT = 58;

class Chart {
  constructor(host, view, { title, unit, series, most }) {
    Object.assign(this, { view, title, unit, seriesOf: series, mostOf: most });
    this.element = document.createElement("div");
    this.element.className = "chart";
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "slider");
    this.canvas.setAttribute("aria-label", `${title} per step`);
    this.canvas.setAttribute("aria-describedby", "keys");
    this.element.append(this.canvas);
    host.append(this.element);
    this.listen();
  }

  load() {
    const { run } = this.view;
    this.series = this.seriesOf(run).map((one) => ({ ...one, sums: prefixSums(one.values) }));
    this.element.hidden = !this.series.some(({ values }) => values.some((value) => value > 0));
    this.most = this.mostOf?.(run) ?? null;
    let top = this.most ?? 0;
    for (let c = 0; c < run.columns; c += 1) {
      let sum = 0;
      for (const { values } of this.series) sum += values[c];
      if (sum > top) top = sum;
    }
    this.top = Math.max(1, top);
  }

  listen() {
    const { canvas, view } = this;
    pointing(canvas, view, (column, event) => this.tell(column, event.clientX, event.clientY));
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !steer(view, event.key)) return;
      event.preventDefault();
      this.tellCursor();
    });
    canvas.addEventListener("focus", () => this.tellCursor());
    canvas.addEventListener("blur", () => tooltip.hide());
  }

  tellCursor() {
    if (!this.canvas.matches(":focus-visible")) return;
    const box = this.canvas.getBoundingClientRect();
    const x = box.left + xOf(this.view, box.width - GUTTER - MARGIN, this.view.cursor);
    this.tell(this.view.cursor, x, box.top + CHART_HEIGHT / 2);
  }

  lines(column) {
    const { step } = this.view.run.steps;
    const lines = [["step", shownNumber(step[column])]];
    for (const { name, values, paint } of this.series) {
      if (this.series.length > 3 && !values[column]) continue;
      lines.push([name, shownNumber(values[column]), colour(paint)]);
    }
    if (this.most !== null) lines.push(["of", shownNumber(this.most)]);
    return lines;
  }

  tell(column, x, y) {
    tooltip.show(this.lines(column), x, y);
  }

  describe() {
    const { run, cursor } = this.view;
    if (!run.columns) return;
    const said = this.lines(cursor)
      .map(([name, value]) => `${name} ${value}`)
      .join(", ");
    this.canvas.setAttribute("aria-valuemin", "0");
    this.canvas.setAttribute("aria-valuemax", String(run.columns - 1));
    this.canvas.setAttribute("aria-valuenow", String(cursor));
    this.canvas.setAttribute("aria-valuetext", said);
  }

  draw() {
    if (this.element.hidden) return;
    const { view, series } = this;
    const { context, width, plot } = fitted(this.canvas, CHART_HEIGHT);
    const paint = theme(view.run);
    const bottom = CHART_HEIGHT - 4;
    const high = bottom - 6;
    context.textAlign = "left";
    context.fillStyle = paint.text;
    context.fillText(this.title, 0, 13);
    context.fillStyle = paint.muted;
    context.fillText(
      this.most === null ? this.unit : `${this.unit} of ${shownNumber(this.most)}`,
      0,
      29,
    );
    context.textAlign = "right";
    context.fillText(shownNumber(this.top), GUTTER - 8, 11);
    context.fillText("0", GUTTER - 8, bottom - 3);
    context.fillStyle = paint.line;
    context.fillRect(GUTTER, bottom, width - GUTTER - MARGIN, 1);
    for (let count = series.length; count > 0; count -= 1) {
      context.fillStyle = colour(series[count - 1].paint);
      this.area(context, plot, series.slice(0, count), bottom, high);
    }
    if (this.most !== null) {
      context.fillStyle = paint.muted;
      context.fillRect(GUTTER, bottom - high, width - GUTTER - MARGIN, 0.5);
    }
    drawFindings(context, view, plot, 2, bottom, paint);
    drawCursor(context, view, plot, 2, bottom, paint);
    this.describe();
  }

  // The area under the sum of some series; each pixel shows the mean of the steps that it holds.
  area(context, plot, series, bottom, high) {
    const { view, top } = this;
    const last = view.run.columns;
    const scale = view.span / plot;
    context.beginPath();
    context.moveTo(GUTTER, bottom);
    for (let px = 0; px < plot; px += 1) {
      const begin = Math.floor(view.from + px * scale);
      if (begin >= last) {
        context.lineTo(GUTTER + px, bottom);
        break;
      }
      const end = Math.min(last, Math.max(begin + 1, Math.floor(view.from + (px + 1) * scale)));
      let sum = 0;
      for (const { sums } of series) sum += sums[end] - sums[begin];
      const y = bottom - (sum / (end - begin) / top) * high;
      context.lineTo(GUTTER + px, y);
      context.lineTo(GUTTER + px + 1, y);
    }
    context.lineTo(GUTTER + Math.min(plot, (last - view.from) / scale), bottom);
    context.fill();
  }
}

function prefixSums(values) {
  const sums = new Float64Array(values.length + 1);
  for (let i = 0; i < values.length; i += 1) sums[i + 1] = sums[i] + values[i];
  return sums;
}

// Pointer and wheel on a drawing: hover tells, click sets the cursor, drag pans, ctrl+wheel zooms.
function pointing(canvas, view, tell, click = () => {}) {
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, from: view.from, to: view.to, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held && event.buttons === 1) {
      const plot = canvas.clientWidth - GUTTER - MARGIN;
      const shift = ((held.x - event.clientX) / plot) * (held.to - held.from);
      held.moved ||= Math.abs(held.x - event.clientX) > 3;
      if (held.moved) view.setRange(held.from + shift, held.to + shift);
    }
    const column = columnAt(view, canvas, event.clientX);
    if (column < 0) tooltip.hide();
    else tell(column, event);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!held) return;
    const column = columnAt(view, canvas, event.clientX);
    if (!held.moved) {
      click(event);
      if (column >= 0) view.setCursor(column);
    }
    held = null;
  });
  canvas.addEventListener("pointerleave", () => {
    held = null;
    tooltip.hide();
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      const share = (event.clientX - box.left - GUTTER) / (box.width - GUTTER - MARGIN);
      if (event.ctrlKey) view.zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, share)));
      else view.pan(Math.sign(event.deltaY || event.deltaX) / 10);
    },
    { passive: false },
  );
}

// ---- which charts there are --------------------------------------------------------------------

const one = (name, paint, values) => ({ name, paint, values });

// Rows and tokens of each step's batches by work, counted once.
function composition(run) {
  if (run.composition) return run.composition;
  const rows = run.keys.map(() => new Uint32Array(run.columns));
  const tokens = run.keys.map(() => new Uint32Array(run.columns));
  const numberOf = run.names.map((name) => run.keys.indexOf(name));
  const { batch, work, count, length } = run.rows;
  const { column } = run.batches;
  for (let i = 0; i < length; i += 1) {
    const key = numberOf[work[i]];
    if (key < 0) continue;
    rows[key][column[batch[i]]] += 1;
    tokens[key][column[batch[i]]] += count[i];
  }
  run.composition = { rows, tokens };
  return run.composition;
}

const byKey = (run, values) =>
  run.keys.map((key, i) => one(key, `--kind-${run.kinds[run.first_key + i][0]}`, values[i]));

function blocks(run) {
  const { blocks_free: free, blocks_prefix_only: prefix } = run.steps;
  const total = run.blocks ?? 0;
  const isTold = (c) => free[c] >= 0;
  const used = Float64Array.from({ length: run.columns }, (_, c) =>
    isTold(c) ? Math.max(0, total - free[c] - prefix[c]) : 0,
  );
  const kept = Float64Array.from({ length: run.columns }, (_, c) => (isTold(c) ? prefix[c] : 0));
  return [one("referenced", "--used", used), one("prefix cache only", "--kept", kept)];
}

const positive = (values) => Float64Array.from(values, (value) => Math.max(0, value));

const CHARTS = [
  {
    title: "Slots",
    unit: "held",
    most: (run) => run.slots,
    series: (run) => [one("slots held", "--used", run.steps.slots_held)],
  },
  {
    title: "Waiting",
    unit: "requests",
    series: (run) => [one("waiting", "--kind-waiting-strong", run.steps.waiting)],
  },
  {
    title: "Queues",
    unit: "ready requests",
    series: (run) =>
      byKey(
        run,
        run.keys.map((key) => run.steps[`queued ${key}`]),
      ),
  },
  { title: "KV blocks", unit: "kept", most: (run) => run.blocks, series: blocks },
  {
    title: "Host",
    unit: "blocks",
    series: (run) => [
      one("blocks on the host", "--kind-offloaded", positive(run.steps.host_blocks)),
    ],
  },
];
const BATCH_CHARTS = [
  { title: "Batches", unit: "rows by work", series: (run) => byKey(run, composition(run).rows) },
  {
    title: "Batches",
    unit: "tokens by work",
    series: (run) => byKey(run, composition(run).tokens),
  },
];
