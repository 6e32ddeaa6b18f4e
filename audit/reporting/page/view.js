// What all drawings share: the range of steps that is shown, the cursor, the request that is chosen.

const LEAST_COLUMNS = 8; // shown at once, at the closest

class View extends EventTarget {
  constructor(run) {
    super();
    this.show(run);
  }

  show(run) {
    this.run = run;
    this.from = 0;
    this.to = Math.max(LEAST_COLUMNS, run.columns);
    this.cursor = 0;
    this.request = -1;
    this.tell("run");
  }

  tell(what) {
    this.dispatchEvent(new CustomEvent("change", { detail: what }));
  }

  get span() {
    return this.to - this.from;
  }

  setRange(from, to) {
    const most = Math.max(LEAST_COLUMNS, this.run.columns);
    const span = Math.min(most, Math.max(LEAST_COLUMNS, to - from));
    this.from = Math.min(Math.max(0, from), most - span);
    this.to = this.from + span;
    this.tell("range");
  }

  // Zoom by a factor; what lies at `share` of the width stays where it is.
  zoom(factor, share = 0.5) {
    const at = this.from + this.span * share;
    const span = this.span * factor;
    this.setRange(at - span * share, at + span * (1 - share));
  }

  pan(share) {
    this.setRange(this.from + this.span * share, this.to + this.span * share);
  }

  // Move the cursor, and the range with it where it would leave it.
  setCursor(column, { reveal = true } = {}) {
    this.cursor = Math.min(Math.max(0, Math.round(column)), Math.max(0, this.run.columns - 1));
    if (reveal && (this.cursor < this.from || this.cursor >= this.to)) {
      const from = this.cursor - this.span / 2;
      this.setRange(from, from + this.span);
    }
    this.tell("cursor");
  }

  choose(request) {
    this.request = request;
    this.tell("request");
  }

  // Bring a place close: a request at a step, with some steps around it.
  goTo(column, request, span = 120) {
    const wide = Math.min(this.span, span);
    this.setRange(column - wide / 2, column + wide / 2);
    if (request >= 0) this.choose(request);
    this.setCursor(column);
  }

  // How far an arrow key goes: a step, or what two pixels hold.
  get stride() {
    return Math.max(1, Math.round(this.span / 400));
  }
}

// Keys that move the cursor and the range in every drawing; true where a key was meant for it.
function steer(view, key) {
  const most = view.run.columns - 1;
  const moves = {
    ArrowLeft: () => view.setCursor(view.cursor - view.stride),
    ArrowRight: () => view.setCursor(view.cursor + view.stride),
    PageUp: () => view.setCursor(view.cursor - Math.ceil(view.span / 10)),
    PageDown: () => view.setCursor(view.cursor + Math.ceil(view.span / 10)),
    Home: () => view.setCursor(0),
    End: () => view.setCursor(most),
    "+": () => view.zoom(0.5, shareOf(view)),
    "=": () => view.zoom(0.5, shareOf(view)),
    "-": () => view.zoom(2, shareOf(view)),
    0: () => view.setRange(0, view.run.columns),
  };
  moves[key]?.();
  return key in moves;
}

const shareOf = (view) => Math.min(1, Math.max(0, (view.cursor - view.from) / view.span));
