// How a lane is painted: its strip of pixels, and the marks above and below it.

function drawMark(context, mark, x, top, paint) {
  if (mark === "preempted") {
    context.fillStyle = paint.text;
    context.beginPath();
    context.moveTo(x - 3.5, top);
    context.lineTo(x + 3.5, top);
    context.lineTo(x, top + 5);
    context.fill();
  } else if (mark === "verdict") {
    context.fillStyle = paint.muted;
    context.fillRect(x - 1, top + 2, 2, 2);
  } else if (mark === "abort" || mark === "refuse") {
    context.strokeStyle = paint.finding;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x - 3, top + 7);
    context.lineTo(x + 3, top + 13);
    context.moveTo(x + 3, top + 7);
    context.lineTo(x - 3, top + 13);
    context.stroke();
  } else if (mark === "finish") {
    context.fillStyle = paint.text;
    context.fillRect(x - 1, top + BAND_TOP - 2, 2, BAND + 4);
  }
}

// A colour of the styles (#rrggbb) as a pixel.
function pixelOf(text) {
  if (!text) return 0;
  const value = parseInt(text.slice(1), 16);
  return (0xff000000 | ((value & 0xff) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

// Stack the shares of each column of pixels from the bottom up.
function fillStrip(image, shares, palette, wide, high) {
  const pixels = new Uint32Array(image.data.buffer);
  const many = palette.length;
  for (let px = 0; px < wide; px += 1) {
    let sum = 0;
    let y = high;
    for (let kind = 1; kind < many; kind += 1) {
      const share = shares[px * many + kind];
      if (share === 0) continue;
      sum += share;
      const until = Math.max(0, Math.round(high * (1 - Math.min(1, sum))));
      for (; y > until; y -= 1) pixels[(y - 1) * wide + px] = palette[kind];
    }
  }
}
