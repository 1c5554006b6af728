// The lives of the largest allocations within the range in view, on the timeline's scale.

const LIFE_ROW = 15;

class Spans {
  constructor(app) {
    Object.assign(this, {app, canvas: $('spans-c'), chosen: -1, list: []});
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
    this.list = largestOf(list, values, +$('spans-n').value);
    if (by === 'start') this.list.sort((a, b) => alloc[a] - alloc[b]);
    if (!this.list.includes(this.chosen)) this.chosen = -1;
  }
  show() { this.find(); this.draw(); this.refill(); }
  drawAll() {
    const {timeline, at} = this.app, {plot} = timeline, now = timeline.toX(at), height = this.list.length * LIFE_ROW + 4;
    const {g} = canvasFor(this.canvas, height);
    g.font = style.small;
    this.list.forEach((i, row) => this.drawLife(g, i, row * LIFE_ROW + 2, plot));
    if (now < plot.x || now > plot.x + plot.width) return;
    g.strokeStyle = style.accent;
    g.lineWidth = 1.5;
    g.beginPath(); g.moveTo(now, 0); g.lineTo(now, height); g.stroke();
  }
  drawLife(g, i, y, {x, width}) {
    const {app} = this, {model} = app, {lives} = model, {fill, colour} = app.palette[model.category[i]], middle = y + LIFE_ROW / 2;
    const from = Math.max(x, app.timeline.toX(lives.alloc[i])), to = Math.min(x + width, app.timeline.toX(Math.min(lives.end[i], model.events)));
    g.fillStyle = style.quiet;
    g.textAlign = 'right';
    g.fillText(sizeText(lives.size[i]), x - 6, middle);
    g.textAlign = 'left';
    g.fillStyle = fill;
    g.fillRect(from, y + 1, Math.max(1.5, to - from), LIFE_ROW - 3);
    if (i === this.chosen) {
      g.strokeStyle = style.accent;
      g.lineWidth = 2;
      g.strokeRect(from, y + 1, Math.max(3, to - from), LIFE_ROW - 3);
    }
    // The label goes into its bar where it fits, else behind it, else before it.
    const label = safeText(model.label(lives.stack[i])), inside = g.measureText(label).width < to - from - 10;
    g.fillStyle = inside ? inkOn(colour) : style.quiet;
    if (inside) return fitText(g, label, from + 5, middle, to - from - 10);
    if (to + 120 < x + width || from < x + 120) return fitText(g, label, to + 5, middle, x + width - to - 8);
    g.textAlign = 'right';
    fitText(g, label, from - 5, middle, from - x - 8);
    g.textAlign = 'left';
  }
  sentence(i) {
    const {model} = this.app, {lives} = model, made = lives.alloc[i] ? `made by event ${countText(lives.alloc[i])}` : 'made before the trace';
    const gone = lives.end[i] === NEVER ? 'alive at the end' : `gone with event ${countText(lives.end[i])}`;
    return `${sizeText(lives.size[i])} ${this.app.palette[model.category[i]].name}, ${made}, ${gone}, ${model.label(lives.stack[i])}`;
  }
  choose(i) { this.chosen = i; $('spans-d').textContent = safeText(this.sentence(i)); this.draw(); }
  listen() {
    const {canvas, app} = this, hit = event => this.list[Math.floor((pointIn(canvas, event)[1] - 2) / LIFE_ROW)];
    canvas.addEventListener('pointermove', event => {
      const i = hit(event);
      if (i === undefined) this.tip.hide(); else this.tip.show(...pointIn(canvas, event), [this.sentence(i)]);
    });
    canvas.addEventListener('pointerleave', () => this.tip.hide());
    canvas.addEventListener('click', event => {
      const i = hit(event);
      if (i === undefined) return;
      this.choose(i);
      app.setAt(app.model.lives.alloc[i]);
    });
    canvas.addEventListener('keydown', event => {
      const at = this.list.indexOf(this.chosen), next = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.list.length - 1}[event.key];
      if (event.key === 'Enter' && this.chosen >= 0) app.setAt(app.model.lives.alloc[this.chosen]);
      else if (next === undefined || !this.list.length) return;
      else this.choose(this.list[Math.max(0, Math.min(next, this.list.length - 1))]);
      event.preventDefault();
    });
  }
  table() {
    const {app} = this, {model} = app, {lives} = model, number = name => ({name, number: true});
    const rows = this.list.map(i => [sizeText(lives.size[i]), app.palette[model.category[i]].name,
      lives.alloc[i] ? countText(lives.alloc[i]) : 'before', lives.end[i] === NEVER ? 'alive' : countText(lives.end[i]),
      model.label(lives.stack[i])]);
    return table([number('Bytes'), {name: 'Category'}, number('Made by event'), number('Gone with event'), {name: 'Stack', wide: true}], rows,
      'The largest allocations that live within the range in view');
  }
}
