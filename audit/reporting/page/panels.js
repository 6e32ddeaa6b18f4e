// What is known in text: the chosen step, the chosen request, every request, every batch.

// ---- the chosen step -----------------------------------------------------------------------------

function facts(list, pairs) {
  list.replaceChildren(
    ...pairs.flatMap(([name, value]) => [
      element("dt", {}, name),
      element("dd", {}, String(value)),
    ]),
  );
}

class StepPanel {
  constructor(view, onRequest) {
    this.view = view;
    this.heading = document.getElementById("step-heading");
    this.facts = document.getElementById("step-facts");
    this.table = new PagedTable(document.getElementById("step-rows"), {
      caption: "Rows of the step's batch",
      columns: [
        ["request", false],
        ["work", false],
        ["computes", false],
      ],
      size: 12,
      row: (i) => {
        const { run } = this.view;
        const place = this.rows[i];
        const request = run.rows.request[place];
        const { key, what } = rowWords(run, place);
        const name = run.requestNames[request];
        return {
          cells: [name, key, what],
          current: request === this.view.request,
          press: () => onRequest(request),
          label: `Choose request ${name}`,
        };
      },
    });
  }

  draw() {
    const { run, cursor } = this.view;
    if (!run.columns) return;
    const { steps } = run;
    const batches = run.batchesAt(cursor);
    this.heading.textContent = `Step ${shownNumber(steps.step[cursor])}`;
    const of = (count, total) =>
      total === null ? shownNumber(count) : `${shownNumber(count)} of ${shownNumber(total)}`;
    const told = batches.flatMap((batch) => {
      const { operation, works, size, because, reason } = batchWords(run, batch);
      return [
        ["batch", `ticket ${run.batches.ticket[batch]}, ${operation}`],
        ["works", works],
        ["size", size],
        ["because", reason ? `${because} (${reason})` : because],
      ];
    });
    facts(this.facts, [
      ...(told.length ? told : [["batch", "none"]]),
      ["waiting", shownNumber(steps.waiting[cursor])],
      ["slots held", of(steps.slots_held[cursor], run.slots)],
      ...(steps.blocks_free[cursor] < 0
        ? []
        : [["blocks free", of(steps.blocks_free[cursor], run.blocks)]]),
    ]);
    this.rows = batches.flatMap((batch) => run.rowsOf(batch));
    this.table.fill(this.rows.length);
  }
}

// ---- the chosen request --------------------------------------------------------------------------

class RequestPanel {
  constructor(view) {
    this.view = view;
    this.heading = document.getElementById("request-heading");
    this.facts = document.getElementById("request-facts");
    this.hint = document.getElementById("request-hint");
    this.body = document.getElementById("request-body");
    this.entries = [];
    this.table = new PagedTable(document.getElementById("request-life"), {
      caption: "Life of the request",
      columns: [
        ["step", true],
        ["event", false],
        ["what", false],
        ["ticket", true],
        ["seq", true],
      ],
      size: 16,
      row: (i) => {
        const { run } = this.view;
        const [column] = this.entries[i];
        const { kind, what, ticket, seq } = entryWords(run, this.entries[i]);
        const step = shownNumber(run.steps.step[column]);
        return {
          cells: [step, kind, what, ticket, seq],
          current: column === this.view.cursor,
          press: () => this.view.setCursor(column),
          label: `Go to step ${step}`,
        };
      },
    });
  }

  draw() {
    const { run, request, cursor } = this.view;
    this.hint.hidden = request >= 0;
    this.body.hidden = request < 0;
    if (request < 0) {
      this.heading.textContent = "Request";
      return;
    }
    const { requests } = run;
    const name = run.requestNames[request];
    const stepOf = (column) => (column < 0 ? "–" : shownNumber(run.steps.step[column]));
    this.heading.textContent = `Request ${name}`;
    facts(this.facts, [
      [
        "ended",
        run.ends[request]
          ? `${run.ends[request]}, step ${stepOf(requests.ended[request])}`
          : "not ended",
      ],
      ["submitted", `step ${stepOf(requests.submitted[request])}`],
      ["first output", `step ${stepOf(requests.first_output[request])}`],
      ["prompt", counted(requests.prompt_len[request], "token")],
      [
        "outputs",
        `${shownNumber(requests.outputs[request])} of at most ${shownNumber(requests.max_tokens[request])}`,
      ],
      ["priority", shownNumber(requests.priority[request])],
      ["preemptions", shownNumber(requests.preemptions[request])],
      [
        "waited",
        `${counted(requests.waited[request], "step")} for a slot, ${counted(requests.idled[request], "step")} for a batch`,
      ],
    ]);
    this.entries = run.life(request);
    this.table.caption.textContent = `Life of request ${name}`;
    const at = this.entries.findIndex(([column]) => column >= cursor);
    this.table.fill(this.entries.length, at < 0 ? this.entries.length - 1 : at);
  }
}

// ---- every request, every batch ------------------------------------------------------------------

class RequestTable {
  constructor(view, onRequest) {
    this.view = view;
    this.table = new PagedTable(document.getElementById("request-table"), {
      caption: "Requests",
      columns: [
        ["request", false, "name"],
        ["ended", false, "end"],
        ["submitted in step", true, "submitted"],
        ["prompt", true, "prompt_len"],
        ["outputs", true, "outputs"],
        ["waited (steps)", true, "waited"],
        ["ready, in no batch (steps)", true, "idled"],
        ["preemptions", true, "preemptions"],
      ],
      size: 25,
      onSort: (sorted) => this.sort(sorted),
      row: (i) => {
        const { run } = this.view;
        const request = this.order[i];
        const { requests } = run;
        const name = run.requestNames[request];
        return {
          cells: [
            name,
            run.ends[request] || "not ended",
            run.steps.step[requests.submitted[request]],
            requests.prompt_len[request],
            requests.outputs[request],
            requests.waited[request],
            requests.idled[request],
            requests.preemptions[request],
          ],
          current: request === this.view.request,
          press: () => onRequest(request),
          label: `Choose request ${name}`,
        };
      },
    });
  }

  show(order) {
    this.given = order;
    this.sort(this.table.sorted);
  }

  sort(sorted) {
    const { run } = this.view;
    const text = { name: run.requestNames, end: run.ends };
    this.order = [...this.given];
    if (sorted) {
      const { key, way } = sorted;
      const isText = key in text;
      const values = isText ? text[key] : run.requests[key];
      this.order.sort(
        (a, b) =>
          way *
          (isText
            ? values[a].localeCompare(values[b], "en", { numeric: true })
            : values[a] - values[b]),
      );
    }
    this.table.fill(this.order.length);
  }

  draw() {
    this.table.turnTo(this.table.first);
  }
}

class BatchTable {
  constructor(view, onStep) {
    this.view = view;
    this.table = new PagedTable(document.getElementById("batch-table"), {
      caption: "Batches",
      columns: [
        ["step", true],
        ["ticket", true],
        ["operation", false],
        ["works", false],
        ["rows", true],
        ["tokens", true],
        ["because", false],
      ],
      size: 12,
      row: (batch) => {
        const { run } = this.view;
        const { operation, works, because } = batchWords(run, batch);
        const column = run.batches.column[batch];
        const step = shownNumber(run.steps.step[column]);
        return {
          cells: [
            step,
            run.batches.ticket[batch],
            operation,
            works,
            run.batches.rows[batch],
            run.batches.tokens[batch],
            because,
          ],
          current: column === this.view.cursor,
          press: () => onStep(column),
          label: `Go to step ${step}`,
        };
      },
    });
  }

  draw() {
    const { run, cursor } = this.view;
    this.table.fill(run.batches.length, firstAtLeast(run.batches.column, cursor));
  }
}
