// What was live at the instant: by stack, category or size and the largest tensors; and the flame view, an icicle of stacks
// weighted with the bytes live then.

function framesList(model, stack) {
  const frames = model.stacks[stack];
  return el('ul', {className: 'frames'}, [...frames].map(f => { const {name, file, line} = model.frames[f]; return el('li', {}, `${name}  ${file}${line ? ':' + line : ''}`); }));
}

// The label of a stack that opens to all its frames, which are made when it does.
function stackCell(model, stack) {
  if (!model.stacks[stack].length) return model.label(stack);
  const details = el('details', {ontoggle: () => { if (details.open && details.children.length === 1) details.append(framesList(model, stack)); }}, el('summary', {}, model.label(stack)));
  return details;
}

function swatch(app, c) {
  const canvas = el('canvas', {className: 'swatch', width: 24, height: 24, 'aria-hidden': 'true'}), g = canvas.getContext('2d');
  g.fillStyle = app.palette[c].fill;
  g.scale(2, 2);
  g.fillRect(0, 0, 12, 12);
  return canvas;
}
const categoryCell = (app, c) => [swatch(app, c), el('span', {className: 'name', title: safeText(app.palette[c].name)}, app.palette[c].name)];

class Live {
  constructor(app) {
    Object.assign(this, {app, by: 'stack', rows: 12});
    for (const [key, text] of [['stack', 'Stack'], ['largest', 'Largest tensors'], ['category', 'Category'], ['size', 'Size']])
      $('live-by').append(el('button', {type: 'button', onclick: () => { this.by = key; this.rows = 12; this.show(); }, value: key}, text));
  }
  groups(key) {
    const {lives} = this.app.model, groups = new Map();
    for (const i of this.app.live) {
      const k = key(i), group = groups.get(k);
      if (!group) groups.set(k, {life: i, bytes: lives.size[i], count: 1, same: lives.size[i]});
      else {
        group.bytes += lives.size[i];
        group.count++;
        if (group.same !== lives.size[i]) group.same = 0;
        if (lives.size[i] > lives.size[group.life]) group.life = i;
      }
    }
    return [...groups.values()].sort((a, b) => b.bytes - a.bytes);
  }
  find() {
    const {model} = this.app, {lives} = model;
    if (this.by === 'stack') return this.groups(i => lives.stack[i]);
    if (this.by === 'category') return this.groups(i => model.category[i]);
    if (this.by === 'size') return this.groups(i => lives.size[i]);
    return largestOf(this.app.live, lives.size, 500).map(i => ({life: i, bytes: lives.size[i], count: 1, same: lives.size[i]}));
  }
  show() {
    const {app} = this, {model} = app, {lives} = model, all = this.find(), whole = app.liveBytes, most = Math.max(1, all.length ? all[0].bytes : 1), largest = this.by === 'largest';
    for (const button of $('live-by').children) button.setAttribute('aria-pressed', button.value === this.by);
    const bar = bytes => { const node = el('span', {className: 'bar', 'aria-hidden': 'true'}); node.style.width = Math.max(1, 90 * bytes / most) + 'px'; return node; };
    const where = group => this.by === 'category' ? '' : stackCell(model, lives.stack[group.life]);
    const rows = all.slice(0, this.rows).map(group => [sizeText(group.bytes), shareText(group.bytes, whole), bar(group.bytes),
      largest ? model.address(group.life) : countText(group.count), ...(largest ? [this.made(group.life)] : [group.same ? sizeText(group.same) : 'mixed']),
      this.by === 'size' ? '' : categoryCell(app, model.category[group.life]), where(group)]);
    const columns = [{name: 'Bytes', number: true}, {name: 'Share', number: true}, {name: '', share: true}, {name: largest ? 'Address' : 'Count', number: !largest, plain: largest},
      {name: largest ? 'Made by' : 'Each', number: !largest, spare: true}, {name: this.by === 'size' ? null : model.facts.categoriesInferred ? 'Category (inferred)' : 'Category', plain: true},
      {name: this.by === 'category' ? null : this.by === 'size' ? 'Stack of one of them' : 'Stack', wide: true}];
    const shown = [...columns.keys()].filter(i => columns[i].name !== null), node = table(shown.map(i => columns[i]), rows.map(row => shown.map(i => row[i])), `Live after event ${app.at}, by ${this.by}`);
    const rest = all.slice(this.rows).reduce((sum, group) => sum + group.bytes, 0);
    $('live-table').replaceChildren(node, el('div', {className: 'pages quiet'}, all.length > this.rows
      ? [`${countText(all.length - this.rows)} more rows hold ${sizeText(rest)} (${shareText(rest, whole)})`, el('button', {type: 'button', onclick: () => { this.rows += 50; this.show(); }}, 'Show 50 more')] : `All ${countText(all.length)} rows, ${sizeText(whole)} in ${countText(app.live.length)} allocations.`));
  }
  made(life) {
    const {model} = this.app, t = model.lives.alloc[life];
    return t === 0 ? 'before the trace' : `event ${countText(t)}`;
  }
}

// The `count` members of `list` with the largest values, largest first.
function largestOf(list, values, count) {
  if (list.length <= 4 * count) return Array.from(list).sort((a, b) => values[b] - values[a]).slice(0, count);
  let best = [], least = -1;
  for (const i of list) {
    if (values[i] <= least) continue;
    best.push(i);
    if (best.length >= 4 * count) { best.sort((a, b) => values[b] - values[a]); best.length = count; least = values[best[count - 1]]; }
  }
  return best.sort((a, b) => values[b] - values[a]).slice(0, count);
}

// All stacks as one tree, outermost frame first; a child has a higher number than its parent.
class StackTree {
  constructor(model) {
    this.parent = [-1]; this.frame = [-1]; this.leaf = new Int32Array(model.stacks.length);
    const children = new Map();
    model.stacks.forEach((frames, s) => {
      let node = 0;
      for (let i = frames.length - 1; i >= 0; i--) {
        const key = node * model.frames.length + frames[i];
        let next = children.get(key);
        if (next === undefined) {
          next = this.parent.length;
          this.parent.push(node);
          this.frame.push(frames[i]);
          children.set(key, next);
        }
        node = next;
      }
      this.leaf[s] = node;
    });
    this.parent = Int32Array.from(this.parent);
  }
}

const FLAME_ROW = 19;

class Flame {
  constructor(app) {
    Object.assign(this, {app, canvas: $('flame-c'), focus: -1, chosen: -1, boxes: []});
    this.tip = tipFor(this.canvas);
    this.draw = perFrame(() => this.drawAll());
    this.refill = tableBehind('flame-t', () => this.table());
    $('flame-up').onclick = () => this.up();
    $('flame-all').onclick = () => { this.focus = this.firstFork(0); this.draw(); };
    this.listen();
  }
  weigh() {
    const {model, live} = this.app, {lives} = model, tree = this.tree ||= new StackTree(model), nodes = tree.parent.length;
    const weights = this.weights = new Float64Array(nodes), own = this.own = new Float64Array(nodes), most = new Map();
    for (const i of live) {
      const leaf = tree.leaf[lives.stack[i]];
      own[leaf] += lives.size[i];
      const best = most.get(leaf);
      if (!best || best.size < lives.size[i]) most.set(leaf, {size: lives.size[i], category: model.category[i]});
    }
    weights.set(own);
    const category = this.category = new Uint8Array(nodes), heaviest = new Float64Array(nodes);
    this.children = new Map();
    for (let n = nodes - 1; n > 0; n--) {
      if (weights[n] === 0) continue;
      const parent = tree.parent[n];
      if (own[n] >= heaviest[n] && most.has(n)) category[n] = most.get(n).category;
      if (weights[n] > heaviest[parent]) { heaviest[parent] = weights[n]; category[parent] = category[n]; }
      weights[parent] += weights[n];
      const list = this.children.get(parent);
      if (list) list.push(n); else this.children.set(parent, [n]);
    }
    for (const list of this.children.values()) list.sort((a, b) => weights[b] - weights[a]);
    if (this.focus < 0 || !weights[this.focus]) this.focus = this.firstFork(0);
  }
  // Frames that everything shares say nothing: down to where the stacks part.
  firstFork(node) {
    for (let list; (list = this.children.get(node)) && list.length === 1 && this.own[node] === 0 && this.children.has(list[0]);) node = list[0];
    return node;
  }
  name(node) { const f = this.tree.frame[node]; return f < 0 ? 'all live bytes' : frameText(this.app.model.frames[f]); }
  drawAll() {
    if (!this.weights) return;
    const {palette, liveBytes} = this.app, whole = this.weights[this.focus], boxes = this.boxes = [], rows = [[this.focus]];
    const wide = Math.max(1, this.canvas.parentElement.clientWidth);
    const place = (node, x, width, depth) => {
      boxes.push({node, x, width, depth});
      if (depth >= 60) return;
      for (const child of this.children.get(node) || []) {
        const part = width * this.weights[child] / this.weights[node];
        if (part < 0.7) break;
        place(child, x, part, depth + 1);
        x += part;
      }
    };
    if (whole > 0) place(this.focus, 0, wide, 0);
    const depth = boxes.reduce((most, box) => Math.max(most, box.depth), 0), {g} = canvasFor(this.canvas, Math.max(rows.length, depth + 1) * FLAME_ROW + 2);
    g.font = style.small;
    for (const box of boxes) {
      const y = box.depth * FLAME_ROW, colour = palette[this.category[box.node]].colour, shared = box.node === this.focus;
      g.fillStyle = shared ? style.line : colour;
      g.globalAlpha = shared ? 1 : 0.88 - 0.16 * (box.depth % 2);
      g.fillRect(box.x, y, Math.max(0.7, box.width - 1), FLAME_ROW - 1);
      g.globalAlpha = 1;
      if (box.node === this.chosen) { g.strokeStyle = style.ink; g.lineWidth = 2; g.strokeRect(box.x + 1, y + 1, Math.max(1, box.width - 3), FLAME_ROW - 3); }
      g.fillStyle = shared ? style.ink : document.documentElement.dataset.dark ? '#f4f5f6' : '#15181c';
      if (!shared) g.fillStyle = inkOn(colour);
      fitText(g, `${this.name(box.node)}  ${sizeText(this.weights[box.node])}`, box.x + 4, y + FLAME_ROW / 2, box.width - 8);
    }
    const path = [];
    for (let n = this.tree.parent[this.focus]; n > 0; n = this.tree.parent[n]) path.unshift(this.name(n));
    $('flame-path').textContent = safeText(path.length ? `Above: ${path.length > 4 ? `${path.length - 3} frames → ` : ''}${path.slice(-3).join(' → ')}` : `${sizeText(liveBytes)} live; colours are the category of most bytes`);
    $('flame-up').disabled = this.focus === 0;
  }
  sentence(node) { return `${this.name(node)}: ${sizeText(this.weights[node])}, ${shareText(this.weights[node], this.app.liveBytes)} of what was live${this.own[node] ? `; ${sizeText(this.own[node])} of it right here` : ''}`; }
  choose(node) { this.chosen = node; $('flame-d').textContent = safeText(this.sentence(node)); this.draw(); }
  zoom(node) { this.focus = node; this.draw(); }
  up() { if (this.focus > 0) this.zoom(this.tree.parent[this.focus]); }
  hit(event) {
    const [x, y] = pointIn(this.canvas, event), depth = Math.floor(y / FLAME_ROW);
    return this.boxes.find(box => box.depth === depth && x >= box.x && x < box.x + box.width);
  }
  listen() {
    const {canvas} = this;
    canvas.addEventListener('pointermove', event => {
      const box = this.hit(event), [x, y] = pointIn(canvas, event);
      canvas.style.cursor = box ? 'pointer' : '';
      if (!box) return this.tip.hide();
      const f = this.tree.frame[box.node];
      this.tip.show(x, y, [this.sentence(box.node), f < 0 ? '' : `${this.app.model.frames[f].file}:${this.app.model.frames[f].line}`]);
    });
    canvas.addEventListener('pointerleave', () => this.tip.hide());
    canvas.addEventListener('click', event => { const box = this.hit(event); if (box) { this.choose(box.node); this.zoom(box.node); } });
    canvas.addEventListener('keydown', event => {
      const node = this.boxes.some(box => box.node === this.chosen) ? this.chosen : this.focus, parent = this.tree.parent[node], row = this.children.get(parent) || [], at = row.indexOf(node);
      const moves = {ArrowDown: () => (this.children.get(node) || [])[0], ArrowUp: () => node === this.focus ? undefined : parent, ArrowRight: () => node === this.focus ? undefined : row[at + 1], ArrowLeft: () => node === this.focus ? undefined : row[at - 1]};
      if (event.key === 'Enter') this.zoom(node);
      else if (event.key === 'Escape' || event.key === 'Backspace') this.up();
      else if (moves[event.key]) { const next = moves[event.key](); if (next !== undefined) this.choose(next); } else return;
      event.preventDefault();
    });
  }
  table() {
    const rows = [], visit = (node, depth) => {
      if (rows.length >= 300) return;
      rows.push([`${'· '.repeat(depth)}${this.name(node)}`, sizeText(this.weights[node]), shareText(this.weights[node], this.app.liveBytes), this.own[node] ? sizeText(this.own[node]) : '']);
      for (const child of this.children.get(node) || []) if (this.weights[child] >= this.weights[this.focus] / 200 && depth < 60) visit(child, depth + 1);
    };
    visit(this.focus, 0);
    return table([{name: 'Frame (dots: depth)'}, {name: 'Bytes', number: true}, {name: 'Share', number: true}, {name: 'Its own', number: true}], rows, 'Live bytes by stack, frames of at least half a percent');
  }
}
