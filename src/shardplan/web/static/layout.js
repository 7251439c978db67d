// The picture of a layout: every accelerator as a cell of its node, with the groups of the rank that one points at.
//
// Data: {num_ranks, levels: [{name, ranks}] inner to outer, kinds: [{name, tone, runs: [[size, stride]], sent}]}; the
// place of a rank in a run is (rank / stride) mod size, so that groups are computed, not sent.

const MOST_HEIGHT = 440; // of the picture, before cells become smaller [px]
const CELLS = [30, 22, 18, 15, 12, 10, 8, 6, 5, 4, 3]; // sides of a cell that are tried, the largest first [px]
const ROWS = [1, 2, 3, 4, 6]; // of nodes in a rack that are tried
const NEXT = { ArrowRight: 1, ArrowLeft: -1 };
const HUES = ["--c1", "--c4", "--c2", "--c6", "--c5", "--c8", "--c3", "--c9"]; // of groups side by side
const number = (value) => value.toLocaleString("en-US");

export function groupOf(kind, rank) {
  let group = [rank];
  for (const [size, stride] of kind.runs) {
    const own = Math.floor(rank / stride) % size;
    group = Array.from({ length: size }, (_, place) => group.map((each) => each + (place - own) * stride)).flat();
  }
  return group.sort((a, b) => a - b);
}

export function placeIn(kind, rank) {
  let place = 0;
  let inner = 1;
  for (const [size, stride] of kind.runs) {
    place += (Math.floor(rank / stride) % size) * inner;
    inner *= size;
  }
  return place;
}

// Which group of its kind a rank is in, from 0, in the order of their first ranks.
function groupNumber(kind, rank) {
  let at = rank;
  for (const [size, stride] of [...kind.runs].sort((a, b) => b[1] - a[1])) {
    at = Math.floor(at / (stride * size)) * stride + (at % stride);
  }
  return at;
}

// Numbers of the domains of a rank, inner to outer, going on from one domain to the next.
export function domainsOf(levels, rank) {
  const found = [];
  let within = rank;
  let first = 0;
  for (let at = levels.length - 1; at >= 0; at -= 1) {
    found[at] = first + Math.floor(within / levels[at].ranks);
    within %= levels[at].ranks;
    first = found[at] * Math.ceil(levels[at].ranks / (levels[at - 1]?.ranks ?? 1));
  }
  return found;
}

class Picture {
  constructor(root) {
    this.data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
    this.canvas = root.querySelector("canvas");
    this.detail = root.querySelector("[data-node]");
    this.said = root.querySelector("[data-rank-said]");
    this.rows = [...root.querySelectorAll("[data-kind]")];
    this.nodeAt = this.data.levels.findIndex((level) => level.name === "node");
    Object.assign(this, { rank: 0, over: null, kind: null, held: null });
    this.ranksOf = new Map(); // of every node
    for (let rank = 0; rank < this.data.num_ranks; rank += 1) {
      const node = domainsOf(this.data.levels, rank)[this.nodeAt];
      if (!this.ranksOf.has(node)) this.ranksOf.set(node, []);
      this.ranksOf.get(node).push(rank);
    }
    this.listen();
    new ResizeObserver(() => this.fit()).observe(this.canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.idle = null;
      this.draw();
    });
    this.canvas.hidden = false;
    this.fit();
    this.tell();
  }

  // Places of all nodes for the largest cells with which the picture is not too high; domains beyond nodes stay together.
  fit() {
    const width = this.canvas.parentElement.clientWidth;
    if (!width || width === this.width) return;
    this.width = width;
    for (const cell of CELLS) {
      const heights = ROWS.map((rows) => this.place(cell, rows));
      this.place(cell, ROWS[heights.indexOf(Math.min(...heights))]);
      if (this.height <= MOST_HEIGHT) break;
    }
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.height = `${this.height}px`;
    this.idle = null;
    this.x = new Float32Array(this.data.num_ranks);
    this.y = new Float32Array(this.data.num_ranks);
    for (const [node, ranks] of this.ranksOf) {
      const [x, y] = this.nodes.get(node);
      ranks.forEach((rank, at) => {
        this.x[rank] = x + (at % this.columns) * this.cell;
        this.y[rank] = y + Math.floor(at / this.columns) * this.cell;
      });
    }
    this.draw();
  }

  place(cell, rows) {
    const inNode = Math.max(...[...this.ranksOf.values()].slice(0, 2).map((ranks) => ranks.length));
    this.cell = cell;
    this.columns = inNode <= 4 ? inNode : Math.ceil(inNode / 2);
    const gap = Math.max(2, Math.min(6, cell / 3)); // between nodes [px]
    const step = [this.columns * cell + gap, Math.ceil(inNode / this.columns) * cell + gap];
    const fit = Math.max(Math.floor(this.width / step[0]), 1);
    const outer = this.data.levels[this.nodeAt + 1];
    const inDomain = outer ? Math.ceil(outer.ranks / this.data.levels[this.nodeAt].ranks) : this.ranksOf.size;
    const across = Math.min(Math.ceil(inDomain / rows), fit);
    const high = Math.ceil(inDomain / across);
    const margin = outer ? gap + 2 : 0;
    const side = Math.max(Math.floor(this.width / (across * step[0] + margin)), 1);
    const block = [across * step[0] + margin, high * step[1] + margin];
    this.nodes = new Map();
    for (const node of this.ranksOf.keys()) {
      const [domain, at] = [Math.floor(node / inDomain), node % inDomain];
      const x = (domain % side) * block[0] + (at % across) * step[0] + margin / 2;
      this.nodes.set(node, [x + gap / 2, Math.floor(domain / side) * block[1] + Math.floor(at / across) * step[1] + gap / 2 + margin / 2]);
    }
    const domains = Math.ceil(this.ranksOf.size / inDomain);
    this.frames = outer ? Array.from({ length: domains }, (_, at) => [(at % side) * block[0], Math.floor(at / side) * block[1], block[0] - 2, block[1] - 2]) : [];
    this.height = Math.ceil(domains / side) * block[1];
    return this.height;
  }

  // The colours of every rank that is lit: of the groups of the rank that one points at, or of all groups of a kind.
  lit() {
    const found = new Map();
    const kind = this.data.kinds.find((each) => each.name === (this.kind ?? this.held));
    if (kind && this.over === null) {
      for (let rank = 0; rank < this.data.num_ranks; rank += 1) found.set(rank, [HUES[groupNumber(kind, rank) % HUES.length]]);
      return found;
    }
    for (const each of kind ? [kind] : this.data.kinds.filter((one) => one.is_shown)) {
      for (const rank of groupOf(each, this.shown)) found.set(rank, [...(found.get(rank) ?? []), each.tone]);
    }
    return found;
  }

  get shown() {
    return this.over ?? this.rank;
  }

  draw() {
    const context = this.canvas.getContext("2d");
    const known = {};
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => (known[name] ??= style.getPropertyValue(name).trim());
    this.idle ??= this.drawnIdle(colour);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.idle, 0, 0);
    this.scale(context);
    const isOfRank = this.over !== null || !(this.kind ?? this.held);
    for (const [rank, tones] of this.lit()) {
      this.cellOf(context, rank, rank === this.shown && isOfRank ? [colour("--text")] : tones.map(colour), colour("--panel"));
    }
  }

  // All accelerators without their groups: it is drawn once, and again where the page or its colours change.
  drawnIdle(colour) {
    const drawn = document.createElement("canvas");
    Object.assign(drawn, { width: this.canvas.width, height: this.canvas.height });
    const context = drawn.getContext("2d");
    this.scale(context);
    context.strokeStyle = colour("--edge");
    for (const frame of this.frames) context.strokeRect(frame[0] + 0.5, frame[1] + 0.5, frame[2], frame[3]);
    const [cell, ink] = [[colour("--line")], colour("--text")];
    for (let rank = 0; rank < this.data.num_ranks; rank += 1) this.cellOf(context, rank, cell, ink);
    return drawn;
  }

  scale(context) {
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const widest = number(this.data.num_ranks - 1).length;
    this.letters = Math.min(11, (1.35 * this.cell) / widest); // numbers of ranks, where they can be read [px]
    context.font = `${this.letters}px system-ui, sans-serif`;
    Object.assign(context, { textAlign: "center", textBaseline: "middle" });
  }

  // The cell of a rank in one colour or several side by side, with its number where there is room.
  cellOf(context, rank, colours, ink) {
    const [x, y] = [this.x[rank], this.y[rank]];
    const side = this.cell > 4 ? this.cell - 1 : this.cell;
    const part = side / colours.length;
    colours.forEach((each, place) => {
      context.fillStyle = each;
      context.fillRect(x + place * part, y, part, side);
    });
    if (this.letters < 8) return;
    context.fillStyle = ink;
    context.fillText(number(rank), x + side / 2, y + side / 2 + 0.5);
  }

  // The rank in words, and its node as a table.
  tell() {
    const { levels, kinds } = this.data;
    const rank = this.shown;
    const domains = domainsOf(levels, rank);
    const node = domains[this.nodeAt];
    const accelerator = this.ranksOf.get(node).indexOf(rank);
    const where = levels.map((level, at) => `${level.name} ${number(domains[at])}`).join(", ");
    const parts = kinds.map((kind) => `${kind.name} ${placeIn(kind, rank)}`).join(", ");
    this.said.textContent = `Rank ${number(rank)}: accelerator ${accelerator} of ${where}${parts ? `; ${parts}` : ""}.`;
    for (const row of this.rows) {
      const kind = kinds.find((each) => each.name === row.dataset.kind);
      row.querySelector("[data-group]").textContent = inWords(groupOf(kind, rank));
    }
    if (this.told === node) {
      for (const row of this.detail.querySelectorAll("tr[data-rank]")) row.classList.toggle("own", Number(row.dataset.rank) === rank);
      return;
    }
    this.told = node;
    const table = document.createElement("table");
    const caption = table.createCaption();
    caption.textContent = `Node ${number(node)}: the place of every rank in its groups`;
    const head = table.createTHead().insertRow();
    for (const title of ["rank", ...kinds.map((kind) => kind.name)]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.className = "n";
      cell.textContent = title;
      head.append(cell);
    }
    const body = table.createTBody();
    for (const each of this.ranksOf.get(node)) {
      const row = body.insertRow();
      row.dataset.rank = each;
      row.classList.toggle("own", each === rank);
      for (const value of [each, ...kinds.map((kind) => placeIn(kind, each))]) {
        const cell = row.insertCell();
        cell.className = "n";
        cell.textContent = number(value);
      }
    }
    this.detail.replaceChildren(table);
  }

  show(change) {
    const before = [this.shown, this.kind, this.held, this.over].join();
    Object.assign(this, change);
    if (before === [this.shown, this.kind, this.held, this.over].join()) return;
    this.draw();
    this.tell();
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    for (const [node, [left, top]] of this.nodes) {
      const [column, row] = [Math.floor((x - left) / this.cell), Math.floor((y - top) / this.cell)];
      if (column < 0 || column >= this.columns || row < 0) continue;
      const rank = this.ranksOf.get(node)[row * this.columns + column];
      if (rank !== undefined) return rank;
    }
    return null;
  }

  key(event) {
    const level = this.data.levels[this.nodeAt].ranks;
    const step = NEXT[event.key] ?? { ArrowDown: level, ArrowUp: -level }[event.key];
    const to = { Home: 0, End: this.data.num_ranks - 1 }[event.key] ?? this.rank + step;
    if (Number.isNaN(to)) return;
    event.preventDefault();
    if (to >= 0 && to < this.data.num_ranks) this.show({ rank: to, over: to });
  }

  listen() {
    this.canvas.addEventListener("pointermove", (event) => this.show({ over: event.pointerType === "touch" ? null : this.at(event) }));
    this.canvas.addEventListener("pointerleave", () => this.show({ over: null }));
    this.canvas.addEventListener("click", (event) => this.show({ rank: this.at(event) ?? this.rank }));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.show({ over: null }));
    this.detail.addEventListener("pointerover", (event) => {
      const row = event.target.closest("tr[data-rank]");
      if (row) this.show({ over: Number(row.dataset.rank) });
    });
    this.detail.addEventListener("pointerleave", () => this.show({ over: null }));
    for (const row of this.rows) {
      const button = row.querySelector("button");
      row.addEventListener("pointerenter", () => this.show({ kind: row.dataset.kind, over: null }));
      row.addEventListener("pointerleave", () => this.show({ kind: null }));
      button.addEventListener("focus", () => this.show({ kind: row.dataset.kind, over: null }));
      button.addEventListener("blur", () => this.show({ kind: null }));
      button.addEventListener("click", () => {
        this.show({ held: this.held === row.dataset.kind ? null : row.dataset.kind });
        for (const each of this.rows) each.querySelector("button").setAttribute("aria-pressed", String(each.dataset.kind === this.held));
      });
    }
  }
}

// As `ranks_text` of the command line.
function inWords(ranks) {
  const last = ranks.at(-1);
  if (ranks.length > 2 && last - ranks[0] === ranks.length - 1) return `${number(ranks[0])} to ${number(last)}`;
  if (ranks.length <= 4) return ranks.map(number).join(", ");
  const end = ranks.findIndex((rank, place) => rank !== ranks[0] + place);
  return `${ranks.slice(0, Math.min(Math.max(end, 1) + 1, 3)).map(number).join(", ")} ... ${number(last)}`;
}

function mount(root) {
  for (const each of root.querySelectorAll("[data-layout]")) each.picture ??= new Picture(each);
}
document.addEventListener("htmx:afterSettle", (event) => mount(event.detail.target));
mount(document);
