// Canvases: their size, the page's colours on them, the axis of steps, and the tooltip.

const GUTTER = 132; // left of every drawing: names and scales
const MARGIN = 14; // right of it

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The colours of the styles as they are now: they change with light, dark and print.
function theme(run) {
  return {
    text: colour("--text"),
    muted: colour("--muted"),
    line: colour("--line"),
    surface: colour("--surface"),
    finding: colour("--finding"),
    accent: colour("--accent"),
    band: colour("--band"),
    kinds: run.kinds.map(([name]) => (name === "gone" ? "" : colour(`--kind-${name}`))),
  };
}

// A canvas as wide as its place, sharp on every screen; gives its context and width in CSS pixels.
function fitted(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(240, canvas.parentElement.clientWidth);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `11px ${colour("--sans")}`;
  context.textBaseline = "middle";
  return { context, width, ratio, plot: width - GUTTER - MARGIN };
}

const xOf = (view, plot, column) => GUTTER + ((column - view.from) / view.span) * plot;

// The column under a place, or -1 outside of the drawing.
function columnAt(view, canvas, clientX) {
  const box = canvas.getBoundingClientRect();
  const plot = box.width - GUTTER - MARGIN;
  const column = Math.floor(view.from + ((clientX - box.left - GUTTER) / plot) * view.span);
  return column >= view.from - 1 && column < view.run.columns && column >= 0 ? column : -1;
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return Math.max(1, [1, 2, 5, 10].find((m) => m * power >= rough) * power);
}

function drawAxis(canvas, view) {
  const { context, width, plot } = fitted(canvas, 34);
  const { run } = view;
  const paint = theme(run);
  context.fillStyle = paint.muted;
  context.textAlign = "left";
  context.fillText("step", 0, 12);
  const tick = niceStep(view.span / (plot / 90));
  context.textAlign = "center";
  for (let c = Math.ceil(view.from / tick) * tick; c < Math.min(view.to, run.columns); c += tick) {
    const x = xOf(view, plot, c + 0.5);
    context.fillStyle = paint.muted;
    const label = shownNumber(run.steps.step[c]);
    const half = context.measureText(label).width / 2;
    context.fillText(label, Math.min(x, width - half), 12);
    context.fillStyle = paint.line;
    context.fillRect(Math.round(x), 20, 1, 6);
  }
  context.fillStyle = paint.line;
  context.fillRect(GUTTER, 26, width - GUTTER - MARGIN, 1);
  context.fillStyle = paint.finding;
  for (const finding of run.findings) {
    if (finding.column < view.from || finding.column >= view.to) continue;
    diamond(context, xOf(view, plot, finding.column + 0.5), 26, 4);
  }
  drawCursor(context, view, plot, 20, 34, paint);
}

function drawCursor(context, view, plot, top, bottom, paint) {
  if (view.cursor < view.from || view.cursor >= view.to) return;
  const left = xOf(view, plot, view.cursor);
  const wide = Math.max(1, plot / view.span);
  context.globalAlpha = 0.22;
  context.fillStyle = paint.accent;
  context.fillRect(left, top, wide, bottom - top);
  context.globalAlpha = 1;
  context.fillRect(Math.round(left + wide / 2), top, 1, bottom - top);
}

function drawFindings(context, view, plot, top, bottom, paint) {
  context.fillStyle = paint.finding;
  context.globalAlpha = 0.5;
  for (const { column } of view.run.findings) {
    if (column < view.from || column >= view.to) continue;
    context.fillRect(Math.round(xOf(view, plot, column + 0.5)), top, 1, bottom - top);
  }
  context.globalAlpha = 1;
}

function diamond(context, x, y, size) {
  context.beginPath();
  context.moveTo(x, y - size);
  context.lineTo(x + size, y);
  context.lineTo(x, y + size);
  context.lineTo(x - size, y);
  context.fill();
}

// Text that ends with … where it would be wider than its place.
function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
}

// ---- the tooltip: under the pointer, or at the cursor of what has the keyboard ------------------

const tooltip = {
  element: null,
  show(lines, x, y) {
    const box = this.element;
    box.replaceChildren(...lines.map(([name, value, swatch]) => tooltipLine(name, value, swatch)));
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = x + 14 + width > window.innerWidth ? x - width - 14 : x + 14;
    const top = y + 14 + height > window.innerHeight ? y - height - 10 : y + 14;
    box.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
  },
  hide() {
    this.element.hidden = true;
  },
};

function tooltipLine(name, value, swatch) {
  const line = document.createElement("div");
  const label = document.createElement("span");
  if (swatch) {
    const mark = document.createElement("i");
    mark.className = "swatch";
    mark.style.background = swatch;
    label.append(mark);
  }
  label.append(name);
  const told = document.createElement("b");
  told.textContent = value;
  line.append(label, told);
  return line;
}
