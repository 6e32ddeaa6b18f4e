// Tables of which one page is there at a time.

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

// A table of which one page is there. `columns`: [heading, isNumber, sort key or nothing].
class PagedTable {
  constructor(host, { caption, columns, size, row, onSort }) {
    Object.assign(this, { columns, size, row, onSort, first: 0, count: 0, sorted: null });
    this.caption = element("caption", {}, caption);
    this.head = element("thead");
    this.body = element("tbody");
    const table = element("table", {}, this.caption, this.head, this.body);
    const scroll = element(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      table,
    );
    this.before = this.button("‹ Earlier", `Earlier rows: ${caption}`, -1);
    this.after = this.button("Later ›", `Later rows: ${caption}`, 1);
    this.place = element("span", { class: "place", role: "status" });
    this.pager = element("div", { class: "pager" }, this.before, this.place, this.after);
    host.append(scroll, this.pager);
    this.drawHead();
  }

  button(text, label, way) {
    const made = element("button", { type: "button", "aria-label": label }, text);
    made.addEventListener("click", () => this.turnTo(this.first + way * this.size));
    return made;
  }

  drawHead() {
    const cells = this.columns.map(([heading, isNumber, key]) => {
      const cell = element("th", { scope: "col", class: isNumber ? "number" : "" });
      if (!key) {
        cell.textContent = heading;
        return cell;
      }
      const way = this.sorted?.key === key ? this.sorted.way : 0;
      if (way) cell.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      const button = element(
        "button",
        { type: "button", class: "sort" },
        heading,
        way ? (way > 0 ? " ▲" : " ▼") : "",
      );
      button.dataset.key = key;
      button.addEventListener("click", () => {
        this.sorted = { key, way: way > 0 ? -1 : 1 };
        this.onSort(this.sorted);
        this.drawHead();
        this.head.querySelector(`[data-key="${key}"]`).focus();
      });
      cell.append(button);
      return cell;
    });
    this.head.replaceChildren(element("tr", {}, ...cells));
  }

  // Show the page that holds a row.
  fill(count, at = 0) {
    this.count = count;
    this.turnTo(Math.floor(at / this.size) * this.size);
  }

  turnTo(first) {
    const last = Math.max(0, Math.floor((this.count - 1) / this.size) * this.size);
    this.first = Math.min(last, Math.max(0, first));
    const end = Math.min(this.count, this.first + this.size);
    const rows = [];
    for (let i = this.first; i < end; i += 1) rows.push(this.made(this.row(i)));
    this.keepingFocus(() => {
      this.body.replaceChildren(...rows);
      this.before.disabled = this.first === 0;
      this.after.disabled = end >= this.count;
    });
    this.pager.hidden = this.count <= this.size;
    this.place.textContent = this.count
      ? `${shownNumber(this.first + 1)} – ${shownNumber(end)} of ${shownNumber(this.count)}`
      : "";
  }

  // Who works with the keyboard stays where they are, though the rows are new ones.
  keepingFocus(change) {
    const focused = document.activeElement;
    const place = [...this.body.rows].findIndex((row) => row.contains(focused));
    change();
    if (place >= 0) {
      const row = this.body.rows[Math.min(place, this.body.rows.length - 1)];
      row?.querySelector("button")?.focus({ preventScroll: true });
    } else if (focused === this.before && this.before.disabled) {
      this.after.focus();
    } else if (focused === this.after && this.after.disabled) {
      this.before.focus();
    }
  }

  made({ cells, current, press, label }) {
    const line = element("tr", current ? { "aria-current": "true" } : {});
    cells.forEach((value, i) => {
      const cell = element("td", { class: this.columns[i][1] ? "number" : "" });
      if (i === 0 && press) {
        const button = element(
          "button",
          { type: "button", class: "link", "aria-label": label },
          String(value),
        );
        button.addEventListener("click", press);
        cell.append(button);
      } else {
        cell.append(typeof value === "number" ? shownNumber(value) : value);
      }
      line.append(cell);
    });
    return line;
  }
}
