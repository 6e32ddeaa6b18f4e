// The chosen request, machine by machine: status, slot, KV, work, tickets, outputs, what happened.
// Its text alternative is the table below it.

const TRACK = 22;
const TRACKS = ["status", "slot", "KV", "work", "ticket", "outputs", "events"];
const LABEL_FROM = 26; // pixels of a step from which on it is labelled
const NOTHING = new Set(["NULL", "FREE", "NONE"]); // states that leave their track empty
const TONES = {
  WAITING: "--kind-waiting-strong",
  ACTIVE: "--used",
  HELD: "--used",
  RESIDENT: "--used",
  FINISHED: "--kind-ended",
  RECEIVING: "--kind-receiving",
  TRANSFERRING: "--kind-transferring",
  OFFLOADED: "--kind-offloaded",
};

class Life {
  constructor(canvas, view, lanes) {
    Object.assign(this, { canvas, view, lanes });
    pointing(canvas, view, (column, event) => {
      if (view.request < 0) return;
      tooltip.show(lanes.lines(view.request, column), event.clientX, event.clientY);
    });
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !steer(view, event.key)) return;
      event.preventDefault();
      this.tellCursor();
    });
    canvas.addEventListener("focus", () => this.tellCursor());
    canvas.addEventListener("blur", () => tooltip.hide());
  }

  tellCursor() {
    const { view, canvas } = this;
    if (!canvas.matches(":focus-visible") || view.request < 0) return;
    const box = canvas.getBoundingClientRect();
    const x = box.left + xOf(view, box.width - GUTTER - MARGIN, view.cursor);
    tooltip.show(this.lanes.lines(view.request, view.cursor), x, box.top + TRACK * 2);
  }

  draw() {
    const { view } = this;
    const { run, request } = view;
    if (request < 0) return;
    const { context, width, plot, ratio } = fitted(this.canvas, TRACK * TRACKS.length + 4);
    const paint = theme(run);
    context.textAlign = "right";
    TRACKS.forEach((name, i) => {
      context.fillStyle = paint.muted;
      context.fillText(name, GUTTER - 12, i * TRACK + TRACK / 2);
      context.fillStyle = paint.line;
      context.fillRect(GUTTER, (i + 1) * TRACK - 1, width - GUTTER - MARGIN, 0.5);
    });
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, plot, TRACK * TRACKS.length);
    context.clip();
    ["status", "slot", "kv"].forEach((name, i) =>
      this.machine(context, name, i * TRACK, plot, paint),
    );
    this.work(context, plot, ratio, paint);
    this.outputs(context, plot, paint);
    this.events(context, plot, paint);
    drawCursor(context, view, plot, 0, TRACK * TRACKS.length, paint);
    context.restore();
    this.canvas.setAttribute("aria-valuemin", "0");
    this.canvas.setAttribute("aria-valuemax", String(run.columns - 1));
    this.canvas.setAttribute("aria-valuenow", String(view.cursor));
    const lines = this.lanes.lines(request, view.cursor);
    this.canvas.setAttribute(
      "aria-valuetext",
      lines.map((line) => line.slice(0, 2).join(" ")).join(", "),
    );
  }

  machine(context, name, top, plot, paint) {
    const { view } = this;
    const { run, request } = view;
    const [begin, end] = run.range("machines", request);
    const { column } = run.machines;
    for (let i = begin; i < end;) {
      const state = run.names[run.machines[name][i]];
      let next = i + 1;
      while (next < end && run.names[run.machines[name][next]] === state) next += 1;
      const until = next < end ? column[next] : run.columns;
      const left = Math.max(GUTTER, xOf(view, plot, column[i]));
      const right = Math.min(GUTTER + plot, xOf(view, plot, until));
      i = next;
      if (right <= left || NOTHING.has(state)) continue;
      context.fillStyle = colour(TONES[state] ?? "--kind-queued");
      context.fillRect(left, top + TRACK - 6, right - left, 3);
      context.fillStyle = paint.text;
      context.textAlign = "left";
      if (right - left > 30)
        context.fillText(shortened(context, state, right - left - 4), left + 2, top + 8);
    }
  }

  work(context, plot, ratio, paint) {
    const { view } = this;
    const { run, request } = view;
    const top = 3 * TRACK;
    context.drawImage(this.lanes.painted(request, plot, ratio), GUTTER, top + 4, plot, TRACK - 9);
    const wide = plot / view.span;
    const [begin, end] = run.range("rows", request);
    const columns = run.batches.column;
    const first = firstAtLeast(
      run.rows.batch,
      firstAtLeast(columns, Math.floor(view.from)),
      begin,
      end,
    );
    context.textAlign = "center";
    for (let i = first; i < end && columns[run.rows.batch[i]] < view.to; i += 1) {
      const x = xOf(view, plot, columns[run.rows.batch[i]]);
      context.fillStyle = paint.line;
      context.fillRect(x, top + TRACK + 8, Math.max(1, wide - 1), 5);
      if (wide < LABEL_FROM) continue;
      context.fillStyle = paint.text;
      context.fillText(
        run.batches.ticket[run.rows.batch[i]],
        x + wide / 2,
        top + TRACK + TRACK / 2,
      );
    }
  }

  outputs(context, plot, paint) {
    const { view } = this;
    const { run, request } = view;
    const top = 5 * TRACK;
    const [begin, end] = run.range("outputs", request);
    const { column, exit_depth: depth } = run.outputs;
    const wide = plot / view.span;
    for (
      let i = firstAtLeast(column, Math.floor(view.from), begin, end);
      i < end && column[i] < view.to;
      i += 1
    ) {
      const x = xOf(view, plot, column[i]);
      const high = ((TRACK - 5) * depth[i]) / Math.max(1, run.depths ?? depth[i]);
      context.fillStyle = colour("--kind-decode-coda");
      context.fillRect(x, top + TRACK - 2 - high, Math.max(1, Math.min(wide - 1, 10)), high);
      if (wide < LABEL_FROM) continue;
      context.fillStyle = paint.text;
      context.textAlign = "left";
      context.fillText(depth[i], x + 12, top + TRACK / 2);
    }
  }

  events(context, plot, paint) {
    const { view } = this;
    const { run, request } = view;
    const [begin, end] = run.range("notes", request);
    const { column, trigger } = run.notes;
    let free = 0; // from where on there is room for a word
    context.textAlign = "left";
    for (
      let i = firstAtLeast(column, Math.floor(view.from), begin, end);
      i < end && column[i] < view.to;
      i += 1
    ) {
      const x = xOf(view, plot, column[i] + 0.5);
      const name = run.names[trigger[i]];
      context.fillStyle = paint.muted;
      context.fillRect(x, 6 * TRACK + 2, 1, 6);
      if (x < free) continue;
      context.fillStyle = paint.text;
      context.fillText(name, x + 3, 6 * TRACK + TRACK / 2 + 2);
      free = x + 10 + context.measureText(name).width;
    }
    context.fillStyle = paint.finding;
    for (const finding of run.findingsOf.get(request) ?? []) {
      diamond(context, xOf(view, plot, finding.column + 0.5), 6 * TRACK + 5, 5);
    }
  }
}
