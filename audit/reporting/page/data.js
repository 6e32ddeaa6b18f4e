// Unpacks a run's columns (audit/reporting/packed.py) and finds things in them.

const ARRAYS = {
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  uint32: Uint32Array,
  int32: Int32Array,
  float64: Float64Array,
};
const PER_REQUEST = ["lanes", "machines", "rows", "outputs", "notes"];

async function inflated(text) {
  const bytes = Uint8Array.fromBase64?.(text) ?? decodedByHand(text);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}

// For browsers that have no fromBase64 yet.
function decodedByHand(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function unpacked(packed) {
  const buffer = await inflated(packed.text);
  const table = { length: packed.length };
  let at = 0;
  for (const column of packed.columns) {
    const kind = ARRAYS[column.type];
    const end = at + packed.length * kind.BYTES_PER_ELEMENT;
    const told = new kind(buffer.slice(at, end));
    table[column.name] = column.is_delta ? summed(told, column.is_wide) : told;
    at = end;
  }
  return table;
}

function summed(differences, isWide) {
  const values = new (isWide ? Float64Array : Int32Array)(differences.length);
  let sum = 0;
  for (let i = 0; i < differences.length; i += 1) {
    sum += differences[i];
    values[i] = sum;
  }
  return values;
}

// The first place in a rising column (or a range of it) whose value is at least `value`.
function firstAtLeast(column, value, low = 0, high = column.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

class Run {
  static async from(packed) {
    const names = Object.keys(packed.tables);
    const tables = await Promise.all(names.map((name) => unpacked(packed.tables[name])));
    const texts = JSON.parse(new TextDecoder().decode(await inflated(packed.texts)));
    return new Run(packed.facts, Object.fromEntries(names.map((n, i) => [n, tables[i]])), texts);
  }

  constructor(facts, tables, texts) {
    Object.assign(this, facts, tables);
    this.names_of = facts.names;
    this.requestNames = facts.requests;
    this.requests = tables.requests;
    this.texts = texts;
    this.columns = this.steps.length;
    this.offsets = {};
    for (const name of PER_REQUEST) this.offsets[name] = this.offsetsOf(this[name].request);
    this.findingsOf = new Map();
    for (const finding of this.findings) {
      finding.column = this.columnOf(finding.step);
      const key = finding.request ?? -1;
      this.findingsOf.set(key, [...(this.findingsOf.get(key) ?? []), finding]);
    }
  }

  // Where each request's rows begin in a table that has them together.
  offsetsOf(request) {
    const offsets = new Uint32Array(this.requests.length + 1);
    for (let i = 0; i < request.length; i += 1) offsets[request[i] + 1] += 1;
    for (let i = 0; i < this.requests.length; i += 1) offsets[i + 1] += offsets[i];
    return offsets;
  }

  range(table, request) {
    return [this.offsets[table][request], this.offsets[table][request + 1]];
  }

  columnOf(step) {
    return Math.min(firstAtLeast(this.steps.step, step), Math.max(0, this.columns - 1));
  }

  // The place in `table` of what was last told of a request up to a column; -1 before its first.
  lastTold(table, request, column) {
    const [begin, end] = this.range(table, request);
    const place = firstAtLeast(this[table].column, column + 1, begin, end) - 1;
    return place < begin ? -1 : place;
  }

  kindAt(request, column) {
    const place = this.lastTold("lanes", request, column);
    return place < 0 ? 0 : this.lanes.kind[place];
  }

  // The batches that were submitted in a column.
  batchesAt(column) {
    const found = [];
    const columns = this.batches.column;
    for (
      let b = firstAtLeast(columns, column);
      b < columns.length && columns[b] === column;
      b += 1
    ) {
      found.push(b);
    }
    return found;
  }

  // The places in `rows` of a batch, by their row numbers; indexed when first asked for.
  rowsOf(batch) {
    if (!this.rowIndex) {
      const { batch: batches, length } = this.rows;
      const starts = new Uint32Array(this.batches.length + 1);
      for (let i = 0; i < length; i += 1) starts[batches[i] + 1] += 1;
      for (let i = 1; i < starts.length; i += 1) starts[i] += starts[i - 1];
      const next = starts.slice();
      const order = new Uint32Array(length);
      for (let i = 0; i < length; i += 1) order[next[batches[i]]++] = i;
      this.rowIndex = { starts, order };
    }
    const { starts, order } = this.rowIndex;
    const places = [...order.subarray(starts[batch], starts[batch + 1])];
    return places.sort((a, b) => this.rows.row[a] - this.rows.row[b]);
  }

  // A request's row in a column's batches; -1 where it has none.
  rowAt(request, column) {
    const [begin, end] = this.range("rows", request);
    const batches = this.batchesAt(column);
    if (!batches.length) return -1;
    const place = firstAtLeast(this.rows.batch, batches[0], begin, end);
    return place < end && this.rows.batch[place] <= batches.at(-1) ? place : -1;
  }

  // What happened to a request in a column but for its row, in order; entries as in `life`.
  told(request, column) {
    const entries = [];
    for (const table of ["notes", "outputs"]) {
      const [begin, end] = this.range(table, request);
      const { column: columns, seq } = this[table];
      let i = firstAtLeast(columns, column, begin, end);
      for (; i < end && columns[i] === column; i += 1) entries.push([column, seq[i], table, i]);
    }
    return entries.sort((a, b) => a[1] - b[1]);
  }

  // A request's whole life in order: [column, seq, table, place]; a row stands at its batch's seq.
  life(request) {
    if (this.lifeOf?.request === request) return this.lifeOf.entries;
    const entries = [];
    for (const table of ["notes", "rows", "outputs"]) {
      const [begin, end] = this.range(table, request);
      for (let i = begin; i < end; i += 1) {
        const isRow = table === "rows";
        const batch = isRow ? this.rows.batch[i] : -1;
        const column = isRow ? this.batches.column[batch] : this[table].column[i];
        const seq = isRow ? this.batches.submitted_seq[batch] - 0.5 : this[table].seq[i];
        entries.push([column, seq, table, i]);
      }
    }
    entries.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    this.lifeOf = { request, entries };
    return entries;
  }
}
