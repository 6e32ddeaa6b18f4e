// The swim lanes: a strip for each request, painted pixel by pixel. A pixel that holds several steps
// shows the share of each kind, stacked in the order of `kinds`; strips are kept until the range
// changes, so that scrolling only copies them.

const LANE = 20;
const BAND = 11; // of a lane's height: what it was; above it marks, below it outputs
const BAND_TOP = 5;
const MOST_STRIPS = 400;
const PREEMPTION_MARKS = new Set(["yield", "offload", "offload_resident", "rewind"]);

class Lanes {
  constructor(scroller, view, voice) {
    Object.assign(this, { scroller, view, voice, shown: [], strips: new Map(), at: 0 });
    this.canvas = scroller.querySelector("canvas");
    this.sizer = scroller.querySelector(".sizer");
    this.listen();
  }

  load() {
    this.stripsOf = "";
    this.strips.clear();
    this.markOf = this.view.run.names.map((name) =>
      PREEMPTION_MARKS.has(name) ? "preempted" : name === "verdict" ? "verdict" : name,
    );
    this.filter("", "all");
  }

  // Show the requests whose id holds `text` and that are of a sort.
  filter(text, sort) {
    const { run } = this.view;
    const wanted = text.trim().toLowerCase();
    const sorts = {
      all: () => true,
      preempted: (r) => run.requests.preemptions[r] > 0,
      findings: (r) => run.findingsOf.has(r),
      aborted: (r) => ["abort", "error", "refused"].includes(run.ends[r]),
      alive: (r) => run.ends[r] === "",
    };
    this.only((r) => sorts[sort](r) && run.requestNames[r].toLowerCase().includes(wanted));
  }

  // Show the requests for which `isWanted` holds.
  only(isWanted) {
    this.shown = [];
    for (let r = 0; r < this.view.run.requests.length; r += 1) {
      if (isWanted(r)) this.shown.push(r);
    }
    this.at = Math.max(0, this.shown.indexOf(this.view.request));
    this.sizer.style.height = `${Math.max(1, this.shown.length) * LANE}px`;
    this.scroller.style.height = `${Math.min(26, Math.max(2, this.shown.length)) * LANE + 2}px`;
  }

  listen() {
    const { scroller, view, canvas } = this;
    scroller.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
    const laneAt = (event) => {
      const top = canvas.getBoundingClientRect().top;
      const lane = Math.floor((event.clientY - top + scroller.scrollTop) / LANE);
      return this.shown[lane] === undefined ? -1 : lane;
    };
    pointing(
      canvas,
      view,
      (column, event) => {
        const lane = laneAt(event);
        if (lane < 0) tooltip.hide();
        else tooltip.show(this.lines(this.shown[lane], column), event.clientX, event.clientY);
      },
      (event) => {
        const lane = laneAt(event);
        if (lane < 0) return;
        this.at = lane;
        view.choose(this.shown[lane]);
      },
    );
    view.addEventListener("change", ({ detail }) => {
      if (detail === "request") this.at = Math.max(0, this.shown.indexOf(view.request));
    });
    scroller.addEventListener("keydown", (event) => this.key(event));
    scroller.addEventListener("focus", () => this.tellCursor());
    scroller.addEventListener("blur", () => {
      tooltip.hide();
      this.draw();
    });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.shown.length) return;
    const last = this.shown.length - 1;
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      this.at = Math.min(last, Math.max(0, this.at + (event.key === "ArrowUp" ? -1 : 1)));
    } else if (event.key === "Enter" || event.key === " ") {
      this.view.choose(this.shown[this.at]);
    } else if (!steer(this.view, event.key)) {
      return;
    }
    event.preventDefault();
    this.reveal();
    this.draw();
    this.tellCursor();
  }

  reveal() {
    const top = this.at * LANE;
    const { scroller } = this;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    const bottom = top + LANE - scroller.clientHeight;
    if (bottom > scroller.scrollTop) scroller.scrollTop = bottom;
  }

  // Bring a request's lane into sight.
  goTo(request) {
    const lane = this.shown.indexOf(request);
    if (lane < 0) return;
    this.at = lane;
    this.reveal();
  }

  lines(request, column) {
    const { run } = this.view;
    const lines = [
      ["request", run.requestNames[request]],
      ["step", shownNumber(run.steps.step[column])],
      ["", standing(run, request, column), theme(run).kinds[run.kindAt(request, column)]],
    ];
    for (const entry of run.told(request, column)) lines.push(["", entryWords(run, entry).what]);
    for (const finding of run.findingsOf.get(request) ?? []) {
      if (finding.column === column) lines.push([finding.invariant, finding.message]);
    }
    return lines.slice(0, 9);
  }

  tellCursor() {
    const request = this.shown[this.at];
    if (request === undefined || !this.scroller.matches(":focus-visible")) return;
    const lines = this.lines(request, this.view.cursor);
    this.voice.textContent = lines.map(([name, value]) => `${name} ${value}`).join(", ");
    const box = this.canvas.getBoundingClientRect();
    const x = box.left + xOf(this.view, box.width - GUTTER - MARGIN, this.view.cursor);
    tooltip.show(lines, x, box.top + this.at * LANE - this.scroller.scrollTop + LANE);
    this.draw();
  }

  // ---- painting --------------------------------------------------------------------------------

  draw() {
    const { view, scroller } = this;
    const height = scroller.clientHeight;
    const { context, width, ratio, plot } = fitted(this.canvas, height);
    const paint = theme(view.run);
    this.freshen(paint, plot, ratio);
    const first = Math.floor(scroller.scrollTop / LANE);
    const isFocused = scroller.matches(":focus-visible");
    for (let lane = first; lane * LANE < scroller.scrollTop + height; lane += 1) {
      const request = this.shown[lane];
      if (request === undefined) break;
      const top = lane * LANE - scroller.scrollTop;
      if (request === view.request || (isFocused && lane === this.at)) {
        context.fillStyle = paint.band;
        context.fillRect(0, top, width, LANE);
      }
      context.textAlign = "left";
      context.fillStyle = request === view.request ? paint.accent : paint.text;
      context.fillText(
        shortened(context, view.run.requestNames[request], GUTTER - 16),
        2,
        top + BAND_TOP + BAND / 2,
      );
      context.drawImage(this.strip(request, plot, ratio), GUTTER, top + BAND_TOP, plot, BAND);
      this.marks(context, request, plot, top, paint);
    }
    if (!this.shown.length) {
      context.fillStyle = paint.muted;
      context.fillText("no request is called so", GUTTER, LANE);
    }
    drawCursor(context, view, plot, 0, Math.min(height, this.shown.length * LANE), paint);
  }

  // Strips are of one range, one width and one theme.
  freshen(paint, plot, ratio) {
    const { from, to } = this.view;
    const key = [from, to, plot, ratio, ...paint.kinds].join(" ");
    if (key === this.stripsOf && this.strips.size <= MOST_STRIPS) return;
    this.strips.clear();
    this.stripsOf = key;
    this.palette = paint.kinds.map(pixelOf);
  }

  strip(request, plot, ratio) {
    const known = this.strips.get(request);
    if (known) return known;
    const strip = this.painted(request, plot, ratio);
    this.strips.set(request, strip);
    return strip;
  }

  // A strip that nobody keeps; the palette is the one of the last drawing.
  painted(request, plot, ratio) {
    const wide = Math.max(1, Math.round(plot * ratio));
    const high = Math.round(BAND * ratio);
    const image = new ImageData(wide, high);
    fillStrip(image, this.shares(request, wide), this.palette, wide, high);
    const canvas = new OffscreenCanvas(wide, high);
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }

  // Of each pixel: how much of it a request was of each kind.
  shares(request, wide) {
    const { run, from, to, span } = this.view;
    const { column, kind } = run.lanes;
    const [begin, end] = run.range("lanes", request);
    const many = run.kinds.length;
    const shares = (this.room =
      this.room?.length === wide * many ? this.room.fill(0) : new Float32Array(wide * many));
    const scale = wide / span;
    const edge = scale >= 2 ? Math.round : (x) => x; // steps that can be told apart share no pixel
    let place = Math.max(begin, firstAtLeast(column, from + 1, begin, end) - 1);
    for (; place < end && column[place] < to; place += 1) {
      if (kind[place] === 0) continue;
      const until = place + 1 < end ? column[place + 1] : run.columns;
      const left = Math.max(0, edge((column[place] - from) * scale));
      const right = Math.min(wide, edge((until - from) * scale));
      let px = Math.floor(left);
      for (let at = left; at < right; px += 1) {
        const next = Math.min(right, px + 1);
        shares[px * many + kind[place]] += next - at;
        at = next;
      }
    }
    return shares;
  }

  marks(context, request, plot, top, paint) {
    const { view } = this;
    const { run, from, to } = view;
    const wide = Math.max(1, plot / view.span - 1);
    let last = -2;
    context.fillStyle = paint.text;
    const [firstOut, endOut] = run.range("outputs", request);
    const outs = run.outputs.column;
    for (let i = firstAtLeast(outs, from, firstOut, endOut); i < endOut && outs[i] < to; i += 1) {
      const x = Math.round(xOf(view, plot, outs[i]));
      if (x > last) context.fillRect(x, top + BAND_TOP + BAND + 1, Math.min(wide, 8), 2);
      last = x;
    }
    const [firstNote, endNote] = run.range("notes", request);
    const { column, trigger } = run.notes;
    let lastX = -9;
    for (
      let i = firstAtLeast(column, from, firstNote, endNote);
      i < endNote && column[i] < to;
      i += 1
    ) {
      const x = xOf(view, plot, column[i] + 0.5);
      const mark = this.markOf[trigger[i]];
      if (mark === "verdict" && x - lastX < 2) continue;
      lastX = x;
      drawMark(context, mark, x, top, paint);
    }
    for (const finding of run.findingsOf.get(request) ?? []) {
      if (finding.column < from || finding.column >= to) continue;
      context.fillStyle = paint.finding;
      diamond(context, xOf(view, plot, finding.column + 0.5), top + BAND_TOP + BAND / 2, 5);
    }
  }
}
