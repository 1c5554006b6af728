// The flame view: an icicle of stacks weighted with the bytes live at the instant.

// Frames that tell nothing apart: those through which every module's call and every step goes, the interpreter's and the
// system's own, those without a name, and those that record the stack.
const CALLERS = /torch[\\/](nn[\\/]modules[\\/]module|utils[\\/]_contextlib|optim[\\/]optimizer)\.py$/;
const CALLS = new Set(['_wrapped_call_impl', '_call_impl', 'inner', 'decorate_context', 'wrapper', '_use_grad']);
const RUNTIME = /(^|[\\/])(libpython[\d.]*\.so[\d.]*|python[\d.]*|libc\.so[\d.]*|libstdc\+\+\.so[\d.]*)$/;
const isPlumbing = ({name, file}) => CALLS.has(name) && CALLERS.test(file) || RUNTIME.test(file) || !name || name === '??'
  || /^torch::(unwind|CapturedTraceback)\b/.test(name);

// All stacks as one tree, outermost frame first; a child has a higher number than its parent. What has no stack is a frame of
// its own below the root.
const ROOT_FRAME = -1, NO_FRAME = -2;
class StackTree {
  constructor(model) {
    this.parent = [-1]; this.frame = [ROOT_FRAME]; this.leaf = new Int32Array(model.stacks.length);
    const children = new Map(), skipped = model.frames.map(isPlumbing), count = model.frames.length + 2;
    model.stacks.forEach((frames, s) => {
      const told = [...frames].filter(f => !skipped[f]), path = !frames.length ? [NO_FRAME] : told.length ? told.reverse() : [...frames].reverse();
      let node = 0;
      for (const frame of path) {
        const key = node * count + frame + 2;
        let next = children.get(key);
        if (next === undefined) {
          next = this.parent.length;
          this.parent.push(node);
          this.frame.push(frame);
          children.set(key, next);
        }
        node = next;
      }
      this.leaf[s] = node;
    });
    this.parent = Int32Array.from(this.parent);
  }
}

// Narrower cells are put together: neither could anybody read them nor hit them.
const LEAST_CELL = 5;
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
    for (;;) {
      const list = this.children.get(node);
      if (!list || list.length !== 1 || this.own[node] > 0 || !this.children.has(list[0])) return node;
      node = list[0];
    }
  }
  name(node) {
    const f = this.tree.frame[node], {model} = this.app;
    return f === ROOT_FRAME ? 'all live bytes' : f === NO_FRAME ? model.facts.noStack : frameText(model.frames[f]);
  }
  drawAll() {
    if (!this.weights) return;
    const whole = this.weights[this.focus], boxes = this.boxes = [];
    const wide = Math.max(1, this.canvas.parentElement.clientWidth);
    const place = (node, x, width, depth) => {
      boxes.push({node, x, width, depth, bytes: this.weights[node]});
      if (depth >= 60) return;
      const all = this.children.get(node) || [], part = child => width * this.weights[child] / this.weights[node];
      let shown = 0;
      for (; shown < all.length && part(all[shown]) >= LEAST_CELL; shown++) {
        place(all[shown], x, part(all[shown]), depth + 1);
        x += part(all[shown]);
      }
      const rest = all.slice(shown), bytes = rest.reduce((sum, child) => sum + this.weights[child], 0);
      const left = width * bytes / this.weights[node];
      if (left >= 1) boxes.push({node: null, rest, x, width: left, depth: depth + 1, bytes});
    };
    if (whole > 0) place(this.focus, 0, wide, 0);
    const depth = boxes.reduce((most, box) => Math.max(most, box.depth), 0), {g} = canvasFor(this.canvas, (depth + 1) * FLAME_ROW + 2);
    g.font = style.small;
    for (const box of boxes) this.drawBox(g, box);
    this.tellPath();
  }
  drawBox(g, {node, rest, x, width, depth, bytes}) {
    const y = depth * FLAME_ROW, shared = node === this.focus || !!rest, {colour} = this.app.palette[rest ? 0 : this.category[node]];
    g.fillStyle = shared ? style.line : colour;
    g.globalAlpha = shared ? 1 : 0.88 - 0.16 * (depth % 2);
    g.fillRect(x, y, Math.max(0.7, width - 1), FLAME_ROW - 1);
    g.globalAlpha = 1;
    if (node === this.chosen) {
      g.strokeStyle = style.ink;
      g.lineWidth = 2;
      g.strokeRect(x + 1, y + 1, Math.max(1, width - 3), FLAME_ROW - 3);
    }
    g.fillStyle = shared ? style.ink : inkOn(colour);
    const words = rest ? `${countText(rest.length)} others` : this.name(node);
    if (width >= 40) fitText(g, `${words}  ${sizeText(bytes)}`, x + 4, y + FLAME_ROW / 2, width - 8);
  }
  // What stands above the focus, in words.
  tellPath() {
    const path = [];
    for (let n = this.tree.parent[this.focus]; n > 0; n = this.tree.parent[n]) path.unshift(this.name(n));
    $('flame-path').textContent = safeText(path.length
      ? `Above: ${path.length > 4 ? `${path.length - 3} frames → ` : ''}${path.slice(-3).join(' → ')}`
      : `${sizeText(this.app.liveBytes)} live; colours are the category of most bytes`);
    $('flame-up').disabled = this.focus === 0;
  }
  sentence(node) {
    const here = this.own[node] ? `; ${sizeText(this.own[node])} of it right here` : '';
    return `${this.name(node)}: ${sizeText(this.weights[node])}, ${shareText(this.weights[node], this.app.liveBytes)} of what was live${here}`;
  }
  restLines({rest, bytes}) {
    const first = rest.slice(0, 8).map(node => `${this.name(node)}: ${sizeText(this.weights[node])}`);
    return [`${countText(rest.length)} others: ${sizeText(bytes)}`, ...first, rest.length > 8 ? '…' : ''];
  }
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
      if (box.rest) return this.tip.show(x, y, this.restLines(box));
      const f = this.tree.frame[box.node];
      this.tip.show(x, y, [this.sentence(box.node), f < 0 ? '' : wholeFrame(this.app.model.frames[f])]);
    });
    canvas.addEventListener('pointerleave', () => this.tip.hide());
    canvas.addEventListener('click', event => {
      const box = this.hit(event);
      if (!box || box.rest) return;
      this.choose(box.node);
      this.zoom(box.node);
    });
    canvas.addEventListener('keydown', event => this.key(event));
  }
  key(event) {
    const shown = new Set(this.boxes.map(box => box.node)), node = shown.has(this.chosen) ? this.chosen : this.focus;
    const parent = this.tree.parent[node], drawn = of => (this.children.get(of) || []).filter(child => shown.has(child));
    const row = node === this.focus ? [] : drawn(parent), at = row.indexOf(node), below = drawn(node);
    const next = {ArrowDown: below[0], ArrowUp: node === this.focus ? undefined : parent, ArrowRight: row[at + 1], ArrowLeft: row[at - 1]};
    if (event.key === 'Enter') this.zoom(node);
    else if (event.key === 'Escape' || event.key === 'Backspace') this.up();
    else if (!event.key.startsWith('Arrow')) return;
    else if (next[event.key] !== undefined) this.choose(next[event.key]);
    event.preventDefault();
  }
  table() {
    const {weights, own} = this, least = weights[this.focus] / 200, rows = [];
    const visit = (node, depth) => {
      if (rows.length >= 300 || depth > 60 || weights[node] < least) return;
      rows.push(['· '.repeat(depth) + this.name(node), sizeText(weights[node]), shareText(weights[node], this.app.liveBytes),
        own[node] ? sizeText(own[node]) : '']);
      for (const child of this.children.get(node) || []) visit(child, depth + 1);
    };
    visit(this.focus, 0);
    return table([{name: 'Frame (dots: depth)'}, {name: 'Bytes', number: true}, {name: 'Share', number: true},
      {name: 'Its own', number: true}], rows, 'Live bytes by stack, frames of at least half a percent');
  }
}
