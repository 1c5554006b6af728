// The lives of the largest allocations within the range in view, on the timeline's scale. Allocations of one size, stack and
// category share a row: what comes back with every step is one line of bars.

const LIFE_ROW = 15, MOST_BARS = 2000;

class Spans {
  constructor(app) {
    Object.assign(this, {app, canvas: $('spans-c'), chosen: -1, rows: []});
    this.tip = tipFor(this.canvas);
    this.draw = perFrame(() => this.drawAll());
    this.refill = tableBehind('spans-t', () => this.table());
    for (const id of ['spans-by', 'spans-n', 'spans-moving']) $(id).onchange = () => this.show();
    this.listen();
  }
  find() {
    const {app} = this, {alloc, end, size} = app.model.lives, from = app.instant(app.lo), to = app.instant(app.hi), by = $('spans-by').value;
    const until = above(alloc, to), seen = new Int32Array(until), values = by === 'held' ? new Float64Array(until) : size;
    let n = 0;
    for (let i = 0; i < until; i++) {
      if (end[i] <= from) continue;
      seen[n++] = i;
      if (by === 'held') values[i] = size[i] * (Math.min(end[i], app.model.events + 1) - alloc[i]);
    }
    let list = seen.subarray(0, n);
    if ($('spans-moving').checked) {
      const early = app.instant(app.lo + (app.hi - app.lo) / 10), moving = list.filter(i => alloc[i] > early || end[i] <= to);
      if (moving.length) list = moving;
    }
    this.rows = this.rowsOf(list, values).slice(0, +$('spans-n').value);
    if (by === 'start') this.rows.sort((a, b) => alloc[a[0]] - alloc[b[0]]);
    if (!this.rows.some(row => row.includes(this.chosen))) this.chosen = -1;
  }
  // Lists of lives in the order of time, those with the largest values first.
  rowsOf(list, values) {
    const {model} = this.app, {lives} = model, rows = new Map();
    for (const i of largestOf(list, values, MOST_BARS)) {
      const key = `${lives.size[i]} ${model.stackKey(i)} ${lives.category[i]}`, row = rows.get(key);
      if (row) row.push(i); else rows.set(key, [i]);
    }
    for (const row of rows.values()) row.sort((a, b) => a - b);
    return [...rows.values()];
  }
  show() { this.find(); this.draw(); this.refill(); }
  drawAll() {
    const {timeline, at} = this.app, {plot} = timeline, now = timeline.toX(at), height = this.rows.length * LIFE_ROW + 4;
    const {g} = canvasFor(this.canvas, height);
    g.font = style.small;
    this.rows.forEach((row, k) => this.drawRow(g, row, k * LIFE_ROW + 2, plot));
    if (now < plot.x || now > plot.x + plot.width) return;
    g.strokeStyle = style.accent;
    g.lineWidth = 1.5;
    g.beginPath(); g.moveTo(now, 0); g.lineTo(now, height); g.stroke();
  }
  drawRow(g, row, y, {x, width}) {
    const {app} = this, {model, timeline} = app, {lives} = model, {fill, colour} = app.palette[model.category[row[0]]];
    const middle = y + LIFE_ROW / 2, bars = row.map(i => ({i, from: Math.max(x, timeline.toX(lives.alloc[i])),
      to: Math.min(x + width, timeline.toX(Math.min(lives.end[i], model.events)))})).filter(({from, to}) => from <= x + width && to >= x);
    g.fillStyle = style.quiet;
    g.textAlign = 'right';
    g.fillText(sizeText(lives.size[row[0]]), x - 6, middle);
    g.textAlign = 'left';
    for (const {i, from, to} of bars) {
      g.fillStyle = fill;
      g.fillRect(from, y + 1, Math.max(1.5, to - from), LIFE_ROW - 3);
      if (i !== this.chosen) continue;
      g.strokeStyle = style.accent;
      g.lineWidth = 2;
      g.strokeRect(from, y + 1, Math.max(3, to - from), LIFE_ROW - 3);
    }
    if (bars.length) this.drawLabel(g, row, bars, middle, colour, x, width);
  }
  // The label goes into its widest bar where it fits, else into the widest gap: behind, before or between the bars.
  drawLabel(g, row, bars, middle, colour, x, width) {
    const {model} = this.app, times = row.length > 1 ? `${row.length} × ` : '';
    const label = safeText(times + model.label(model.lives.stack[row[0]])), need = g.measureText(label).width + 10;
    const widest = bars.reduce((best, bar) => bar.to - bar.from > best.to - best.from ? bar : best);
    if (widest.to - widest.from > need) {
      g.fillStyle = inkOn(colour);
      return fitText(g, label, widest.from + 5, middle, widest.to - widest.from - 10);
    }
    const edges = [x];
    for (const {from, to} of bars) { // in the order of time; lives may overlap
      if (from > edges[edges.length - 1]) edges.push(from, to);
      else edges[edges.length - 1] = Math.max(edges[edges.length - 1], to);
    }
    edges.push(x + width);
    let at = 0;
    for (let k = 0; k < edges.length; k += 2) if (edges[k + 1] - edges[k] > edges[at + 1] - edges[at] + 1) at = k;
    const room = edges[at + 1] - edges[at] - 10, nearRight = at === 0;
    g.fillStyle = style.quiet;
    g.textAlign = nearRight && need < room ? 'right' : 'left';
    fitText(g, label, g.textAlign === 'right' ? edges[1] - 5 : edges[at] + 5, middle, room);
    g.textAlign = 'left';
  }
  sentence(i) {
    const {model} = this.app, {lives} = model, made = lives.alloc[i] ? `made by event ${countText(lives.alloc[i])}` : 'made before the trace';
    const gone = lives.end[i] === NEVER ? 'alive at the end' : `gone with event ${countText(lives.end[i])}`;
    return `${sizeText(lives.size[i])} ${model.categoryName(i)}, ${made}, ${gone}, ${model.label(lives.stack[i])}`;
  }
  choose(i) { this.chosen = i; $('spans-d').textContent = safeText(this.sentence(i)); this.draw(); }
  // The life under the pointer: of its row, the bar that is nearest.
  hit(event) {
    const [x, y] = pointIn(this.canvas, event), row = this.rows[Math.floor((y - 2) / LIFE_ROW)];
    const {timeline, model} = this.app, {alloc, end} = model.lives;
    const away = i => Math.max(timeline.toX(alloc[i]) - x, x - timeline.toX(Math.min(end[i], model.events)), 0);
    return row?.reduce((best, i) => away(i) < away(best) ? i : best);
  }
  listen() {
    const {canvas, app} = this;
    canvas.addEventListener('pointermove', event => {
      const i = this.hit(event);
      if (i === undefined) this.tip.hide(); else this.tip.show(...pointIn(canvas, event), [this.sentence(i)]);
    });
    canvas.addEventListener('pointerleave', () => this.tip.hide());
    canvas.addEventListener('click', event => {
      const i = this.hit(event);
      if (i === undefined) return;
      this.choose(i);
      app.setAt(app.model.lives.alloc[i]);
    });
    canvas.addEventListener('keydown', event => this.key(event));
  }
  key(event) {
    const {rows, chosen, app} = this, at = rows.findIndex(row => row.includes(chosen)), row = rows[at] ?? [], k = row.indexOf(chosen);
    const down = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1}[event.key];
    const beside = {ArrowRight: k + 1, ArrowLeft: k - 1}[event.key];
    if (event.key === 'Enter' && chosen >= 0) app.setAt(app.model.lives.alloc[chosen]);
    else if (down !== undefined && rows.length) this.choose(rows[Math.max(0, Math.min(down, rows.length - 1))][0]);
    else if (beside !== undefined && row.length) this.choose(row[Math.max(0, Math.min(beside, row.length - 1))]);
    else return;
    event.preventDefault();
  }
  table() {
    const {app} = this, {model} = app, {lives} = model, number = name => ({name, number: true});
    const rows = this.rows.map(row => [sizeText(lives.size[row[0]]), countText(row.length), model.categoryName(row[0]),
      lives.alloc[row[0]] ? countText(lives.alloc[row[0]]) : 'before', lives.end[row.at(-1)] === NEVER ? 'alive' : countText(lives.end[row.at(-1)]),
      stackCell(model, lives.stack[row[0]])]);
    return table([number('Bytes'), number('Count'), {name: 'Category', plain: true}, number('First made by event'), number('Last gone with'),
      {name: 'Stack', wide: true}], rows,
      'The largest allocations that live within the range in view');
  }
}
