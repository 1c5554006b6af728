// The table of allocations: a part of them by scope and search, sorted by any column, in pages, and as CSV. Sorting is by radix
// on 48-bit whole numbers, so that five million rows take a fraction of a second.
const PAGE_ROWS = 100;

// Stable order of `list` by keys[i] (of the i-th member), whole numbers from 0 below 2^48.
function radixOrder(list, keys) {
  let from = Int32Array.from(list), to = new Int32Array(list.length), fromKeys = Float64Array.from(keys), toKeys = new Float64Array(list.length);
  const most = largestIn(keys, 0);
  for (let unit = 1; unit <= most; unit *= 65536) {
    const first = new Uint32Array(65537);
    const digit = key => Math.floor(key / unit) % 65536;
    for (let i = 0; i < from.length; i++) first[digit(fromKeys[i]) + 1]++;
    for (let d = 0; d < 65536; d++) first[d + 1] += first[d];
    for (let i = 0; i < from.length; i++) {
      const place = first[digit(fromKeys[i])]++;
      to[place] = from[i];
      toKeys[place] = fromKeys[i];
    }
    [from, to, fromKeys, toKeys] = [to, from, toKeys, fromKeys];
  }
  return from;
}

// A spreadsheet takes cells that begin with these for formulas: names from a snapshot must not become any.
function csvCell(value) {
  let text = String(value);
  if (/^[=+\-@\t\r]/.test(text)) text = "'" + text;
  return /[",\n\r]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
}

// The place of each name in their order.
function ranks(names) {
  const place = [];
  [...names.keys()].sort((a, b) => names[a] < names[b] ? -1 : 1).forEach((name, rank) => { place[name] = rank; });
  return place;
}

class Allocations {
  constructor(app) {
    Object.assign(this, {app, sort: 'bytes', down: true, page: 0});
    const {lives} = app.model, ends = i => Math.min(lives.end[i], app.model.events + 1);
    this.columns = [
      {id: 'bytes', name: 'Bytes', number: true, key: i => lives.size[i], text: i => sizeText(lives.size[i]), csv: i => lives.size[i]},
      {id: 'block', name: 'Block', number: true, spare: true, key: i => app.blockOf(i), text: i => sizeText(app.blockOf(i)),
        csv: i => app.blockOf(i)},
      {id: 'made', name: 'Made by event', number: true, key: i => lives.alloc[i],
        text: i => lives.alloc[i] ? countText(lives.alloc[i]) : 'before', csv: i => lives.alloc[i]},
      {id: 'gone', name: 'Gone with', number: true, key: ends, text: i => lives.end[i] === NEVER ? 'alive' : countText(lives.end[i]),
        csv: i => lives.end[i] === NEVER ? '' : lives.end[i]},
      {id: 'held', name: 'Events held', number: true, spare: true, key: i => ends(i) - lives.alloc[i],
        text: i => countText(ends(i) - lives.alloc[i]), csv: i => ends(i) - lives.alloc[i]},
      {id: 'address', name: 'Address', plain: true, spare: true, key: i => lives.addr[i], text: i => app.model.address(i),
        csv: i => app.model.address(i)},
      {id: 'category', plain: true, name: app.model.facts.categoriesInferred ? 'Category (inferred)' : 'Category',
        key: i => this.categoryRank[lives.category[i]], text: i => categoryCell(app, i), csv: i => app.model.categoryName(i)},
      {id: 'stack', name: 'Stack', wide: true, key: i => this.stackRank[lives.stack[i]], text: i => stackCell(app.model, lives.stack[i]),
        csv: i => this.stackText(lives.stack[i])}];
    this.categoryRank = ranks(app.model.facts.categories);
    this.show = perFrame(() => this.build());
    const asked = () => {
      this.page = 0;
      clearTimeout(this.wait);
      this.wait = setTimeout(() => this.show(), 120);
    };
    for (const id of ['table-q', 'table-scope']) $(id).addEventListener('input', asked);
    $('table-csv').onclick = () => this.download();
  }
  stackText(stack) {
    const {model} = this.app;
    return [...model.stacks[stack]].map(f => `${model.frames[f].name} ${model.frames[f].file}:${model.frames[f].line}`).join(' < ');
  }
  scoped() {
    const {app} = this, {model} = app, {alloc, count} = model.lives, scope = $('table-scope').value;
    if (scope === 'live') return app.live;
    const [from, to] = scope === 'all' ? [0, count] : [above(alloc, app.instant(app.lo) - 1), above(alloc, app.instant(app.hi))];
    const list = new Int32Array(to - from);
    for (let i = 0; i < list.length; i++) list[i] = from + i;
    return list;
  }
  // All words must be found in a row's stack or category; a word like 0x7f... is an address within the block.
  found(list) {
    const words = $('table-q').value.toLowerCase().split(/\s+/).filter(Boolean), {model, palette} = this.app, {lives} = model;
    for (const word of words) {
      if (/^0x[0-9a-f]+$/.test(word)) {
        const at = Number(BigInt(word) - model.base);
        list = list.filter(i => lives.addr[i] <= at && at < lives.addr[i] + Math.max(lives.block[i], 1));
        continue;
      }
      const frame = model.frames.map(f => `${f.name} ${f.file}:${f.line}`.toLowerCase().includes(word));
      const stack = model.stacks.map(frames => frames.some(f => frame[f])), category = palette.map(c => c.name.toLowerCase().includes(word));
      list = list.filter(i => stack[lives.stack[i]] || category[model.category[i]]);
    }
    return list;
  }
  find() {
    const column = this.columns.find(c => c.id === this.sort), list = this.found(this.scoped()), keys = new Float64Array(list.length);
    if (this.sort === 'stack') this.stackRank ||= ranks(this.app.model.labels);
    for (let i = 0; i < list.length; i++) keys[i] = Math.max(0, Math.min(column.key(list[i]), 2 ** 48 - 1));
    const order = radixOrder(list, keys);
    return this.down ? order.reverse() : order;
  }
  build() {
    const rows = this.rows = this.find(), {lives} = this.app.model, pages = Math.max(1, Math.ceil(rows.length / PAGE_ROWS));
    this.page = Math.max(0, Math.min(this.page, pages - 1));
    const from = this.page * PAGE_ROWS, part = Array.from(rows.subarray(from, from + PAGE_ROWS));
    const bytes = rows.reduce((sum, i) => sum + lives.size[i], 0), focused = document.activeElement?.closest('#table th')?.cellIndex;
    const turn = (text, page) => {
      const onclick = () => { this.page = page; this.build(); };
      return el('button', {type: 'button', disabled: page < 0 || page >= pages, onclick}, text);
    };
    $('table-body').replaceChildren(this.rowsTable(part), el('div', {className: 'pages quiet'}, turn('‹ Back', this.page - 1),
      turn('Next ›', this.page + 1), el('span', {role: 'status'}, rows.length
        ? `${countText(from + 1)} – ${countText(from + part.length)} of ${countText(rows.length)}, ${sizeText(bytes)} together`
        : 'Nothing matches. Try “all”, or fewer words.')));
    if (focused !== undefined) $('table-body').querySelectorAll('th button')[focused]?.focus();
  }
  rowsTable(part) {
    const arrow = this.down ? ' ↓' : ' ↑';
    const head = c => el('button', {type: 'button', onclick: () => this.by(c.id)}, c.name + (c.id === this.sort ? arrow : ''));
    const heads = this.columns.map(c => ({...c, name: head(c)}));
    const node = table(heads, part.map(i => this.columns.map(c => c.text(i))), 'Allocations');
    node.querySelectorAll('th')[this.columns.findIndex(c => c.id === this.sort)].setAttribute('aria-sort', this.down ? 'descending' : 'ascending');
    return node;
  }
  by(id) {
    this.down = id === this.sort ? !this.down : id !== 'stack' && id !== 'category';
    this.sort = id;
    this.page = 0;
    this.build();
  }
  csv() {
    const parts = [this.columns.map(c => c.id).join(',') + '\n'];
    let text = '';
    for (const i of this.find()) {
      text += this.columns.map(c => csvCell(c.csv(i))).join(',') + '\n';
      if (text.length > 1 << 20) { parts.push(text); text = ''; }
    }
    return [...parts, text];
  }
  download() {
    const url = URL.createObjectURL(new Blob(this.csv(), {type: 'text/csv'})), link = el('a', {href: url, download: 'allocations.csv'});
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}
