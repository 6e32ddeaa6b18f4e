// Numbers and facts as people read them. What Python has said in words already comes as text.

const INTEGER = new Intl.NumberFormat("en");
const DECIMAL = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

const shownNumber = (value) => (Number.isInteger(value) ? INTEGER : DECIMAL).format(value);
const counted = (count, thing) => {
  const plural = thing.endsWith("ch") ? `${thing}es` : `${thing}s`;
  return `${shownNumber(count)} ${count === 1 ? thing : plural}`;
};

// What a row of a batch computes.
function rowWords(run, place) {
  const { work, start, count, depth, replay } = run.rows;
  const key = run.names[work[place]];
  const first = shownNumber(start[place]);
  const last = shownNumber(start[place] + count[place] - 1);
  const tokens = count[place] === 1 ? `position ${first}` : `positions ${first} to ${last}`;
  const loop = depth[place] < 0 ? "" : `, loop ${depth[place] + 1}`;
  const again = replay[place] ? ", computed again" : "";
  return { key, what: tokens + loop + again };
}

function batchWords(run, batch) {
  const { operation, works, rows, tokens, reason } = run.batches;
  return {
    operation: run.names[operation[batch]],
    works: run.names[works[batch]].replaceAll("+", " + "),
    size: `${counted(rows[batch], "row")}, ${counted(tokens[batch], "token")}`,
    reason: run.names[reason[batch]],
    because: run.because[reason[batch]],
  };
}

// One entry of a request's life.
function entryWords(run, [column, seq, table, place]) {
  if (table === "rows") {
    const { key, what } = rowWords(run, place);
    const ticket = run.batches.ticket[run.rows.batch[place]];
    return { kind: "row", what: `${key}, ${what}`, ticket, seq: "" };
  }
  if (table === "outputs") {
    const { idx, token, exit_depth: depth } = run.outputs;
    const what = `output ${idx[place]}: token ${token[place]}, exit depth ${depth[place]}`;
    return { kind: "output", what, ticket: "", seq };
  }
  const { trigger, text } = run.notes;
  return { kind: run.names[trigger[place]], what: run.texts[text[place]], ticket: "", seq };
}

// Where a request stands in a column, in one line.
function standing(run, request, column) {
  const kind = run.kindAt(request, column);
  const row = run.rowAt(request, column);
  if (row < 0) return run.kinds[kind][1];
  const { key, what } = rowWords(run, row);
  return `in the batch: ${key}, ${what}`;
}
