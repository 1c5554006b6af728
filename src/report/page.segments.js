// The segment map, to scale: each segment is a strip whose length is its bytes, and long ones continue on the next line. Live
// blocks have the colour of their category, free bytes are hatched. Below it, the chosen segment over the whole width. And the
// lives of the largest allocations, on the timeline's scale.

const MAP_ROW = 15;

class SegmentMap {
  constructor(app) {
    Object.assign(this, {app, canvas: $('map-c'), wide: $('segment-c'), chosen: 0, block: -1, boxes: []});
    this.tip = tipFor(this.canvas);
    this.draw = perFrame(() => this.drawAll());
    this.refill = tableBehind('map-t', () => this.table());
    this.listen();
  }
  // Segments at the instant with their live blocks in address order.
  find() {
    const {app} = this, {lives} = app.model, list = this.list = segmentsAt(app.model.segments, app.at);
    for (const s of list) Object.assign(s, {blocks: [], live: 0, pending: 0, rounding: 0});
    const sorted = Array.from(app.live).sort((a, b) => lives.addr[a] - lives.addr[b]);
    let s = 0;
    this.strays = 0;
    for (const i of sorted) {
      while (s < list.length && list[s].addr + list[s].size <= lives.addr[i]) s++;
      if (s === list.length || lives.addr[i] < list[s].addr) { this.strays++; continue; }
      const segment = list[s];
      segment.blocks.push(i);
      if (app.model.pending(i, app.at)) segment.pending += lives.block[i];
      else { segment.live += lives.size[i]; segment.rounding += lives.block[i] - lives.size[i]; }
    }
    this.sums = {reserved: 0, live: 0, pending: 0, rounding: 0, returnable: 0, pinned: 0};
    for (const segment of list) {
      segment.free = Math.max(0, segment.size - segment.live - segment.pending - segment.rounding);
      this.sums.reserved += segment.size;
      for (const key of ['live', 'pending', 'rounding']) this.sums[key] += segment[key];
      this.sums[segment.blocks.length ? 'pinned' : 'returnable'] += segment.free;
    }
    list.sort((a, b) => b.size - a.size || a.addr - b.addr);
    if (this.chosen >= list.length) this.chosen = 0;
    this.block = -1;
  }
  // Places strips on lines, largest first: boxes of {segment, from, to (bytes), line, x, width}.
  place(width) {
    const whole = Math.max(this.sums.reserved, 1), lines = Math.max(3, Math.min(30, Math.ceil(this.list.length / 3))), perPixel = whole / (width * lines), boxes = [];
    let x = 0, line = 0;
    this.list.forEach((segment, i) => {
      let from = 0, need = Math.max(2, segment.size / perPixel);
      if (x > 0 && x + need > width) { x = 0; line++; }
      while (need > 0) {
        const part = Math.min(need, width - x), to = part < need ? from + part * perPixel : segment.size;
        boxes.push({segment, i, from, to, line, x, width: part});
        need -= part;
        from = to;
        x += part;
        if (need > 0) { x = 0; line++; }
      }
      x += 2;
      if (x >= width) { x = 0; line++; }
    });
    this.lines = line + 1;
    return boxes;
  }
  strip(g, segment, from, to, x, y, width, height) {
    const {app} = this, {lives, category} = app.model, scale = width / (to - from), {blocks} = segment;
    g.fillStyle = style.freeFill;
    g.fillRect(x, y, width, height);
    let low = 0, high = blocks.length;
    while (low < high) { const middle = low + high >>> 1; if (lives.addr[blocks[middle]] - segment.addr + lives.block[blocks[middle]] > from) high = middle; else low = middle + 1; }
    for (let b = low, drawn = -1; b < blocks.length; b++) {
      const i = blocks[b], at = lives.addr[i] - segment.addr;
      if (at >= to) break;
      const left = x + Math.max(0, at - from) * scale, right = x + Math.min(to - from, at + lives.block[i] - from) * scale;
      if (right < drawn + 0.25) continue;
      g.fillStyle = app.model.pending(i, app.at) ? style.pendingFill : app.palette[category[i]].fill;
      const wide = Math.max(0.5, right - left - (right - left > 3 ? 0.75 : 0));
      g.fillRect(left, y, wide, height);
      drawn = left + wide;
    }
    g.strokeStyle = segment.pool ? style.alarm : style.quiet;
    g.lineWidth = segment.pool ? 1.5 : 0.75;
    g.strokeRect(x + 0.5, y + 0.5, Math.max(1, width - 1), height - 1);
  }
  drawAll() {
    const width = Math.max(1, this.canvas.parentElement.clientWidth);
    this.boxes = this.list.length ? this.place(width) : [];
    const {g} = canvasFor(this.canvas, this.list.length ? this.lines * MAP_ROW : 4);
    for (const box of this.boxes) {
      this.strip(g, box.segment, box.from, box.to, box.x, box.line * MAP_ROW, box.width, MAP_ROW - 3);
      if (box.i !== this.chosen) continue;
      g.strokeStyle = style.accent;
      g.lineWidth = 2.5;
      g.strokeRect(box.x + 1, box.line * MAP_ROW + 1, Math.max(2, box.width - 2), MAP_ROW - 5);
    }
    this.drawWide();
  }
  drawWide() {
    const segment = this.list[this.chosen], {g, width} = canvasFor(this.wide, segment ? 30 : 2);
    if (!segment) return;
    this.strip(g, segment, 0, segment.size, 0, 0, width, 29);
    if (this.block < 0) return;
    const {lives} = this.app.model, i = segment.blocks[this.block];
    g.strokeStyle = style.accent;
    g.lineWidth = 2.5;
    g.strokeRect((lives.addr[i] - segment.addr) / segment.size * width + 1, 1, Math.max(3, lives.block[i] / segment.size * width - 2), 27);
  }
  show() {
    this.find();
    const {sums, list, app} = this, {model} = app;
    $('map').hidden = !model.hasSegments;
    $('map-sum').textContent = `${countText(list.length)} segments, ${sizeText(sums.reserved)} reserved: ${sizeText(sums.live)} live, ${sizeText(sums.rounding)} rounding, ${sums.pending ? sizeText(sums.pending) + ' freed but pending, ' : ''}`
      + `${sizeText(sums.returnable)} free in empty segments (empty_cache returns them), ${sizeText(sums.pinned)} free in segments with live blocks.`
      + ' To scale; hatched is free; a red frame is a private pool.' + (this.strays ? ` ${countText(this.strays)} live allocations lie in no known segment.` : '');
    $('map-d').textContent = list.length ? this.sentence() : '';
    this.draw();
    this.refill();
  }
  sentence() {
    const {app, chosen, block} = this, {model} = app, s = this.list[chosen];
    const segment = `Segment ${chosen + 1} of ${this.list.length}: 0x${(model.base + BigInt(s.addr)).toString(16)}, ${sizeText(s.size)}, ${countText(s.blocks.length)} live blocks, ${sizeText(s.free)} free${s.joins ? ', expandable' : ''}${s.pool ? `, private pool ${model.facts.pools[s.pool]}` : ''}`;
    if (block < 0) return segment;
    const i = s.blocks[block];
    return safeText(`${segment}. Block ${block + 1}: ${sizeText(model.lives.size[i])} ${app.palette[model.category[i]].name}${model.pending(i, app.at) ? ' (pending)' : ''}, ${model.address(i)}, ${model.label(model.lives.stack[i])}`);
  }
  choose(segment, block) {
    this.chosen = Math.max(0, Math.min(segment, this.list.length - 1));
    this.block = block;
    $('map-d').textContent = this.sentence();
    this.draw();
  }
  hit(event) {
    const [x, y] = pointIn(this.canvas, event), line = Math.floor(y / MAP_ROW), box = this.boxes.find(b => b.line === line && x >= b.x && x < b.x + Math.max(2, b.width));
    return box ? {i: box.i, at: box.from + (x - box.x) / box.width * (box.to - box.from)} : null;
  }
  blockAt(segment, at) {
    const {lives} = this.app.model, place = segment.blocks.findIndex(i => lives.addr[i] - segment.addr <= at && at < lives.addr[i] - segment.addr + lives.block[i]);
    return place;
  }
  listen() {
    const {canvas, wide} = this, say = (x, y) => this.tip.show(x, y, [this.sentence()]);
    canvas.addEventListener('pointermove', event => {
      const hit = this.hit(event), [x, y] = pointIn(canvas, event);
      if (!hit) return this.tip.hide();
      this.choose(hit.i, this.blockAt(this.list[hit.i], hit.at));
      say(x, y);
    });
    canvas.addEventListener('pointerleave', () => this.tip.hide());
    wide.addEventListener('pointermove', event => {
      const s = this.list[this.chosen];
      if (s) this.choose(this.chosen, this.blockAt(s, pointIn(wide, event)[0] / wide.clientWidth * s.size));
    });
    canvas.addEventListener('keydown', event => {
      const s = this.list[this.chosen], moves = {ArrowDown: [1, -1], ArrowUp: [-1, -1]};
      if (!s) return;
      if (moves[event.key]) this.choose(this.chosen + moves[event.key][0], -1);
      else if (event.key === 'ArrowRight') this.choose(this.chosen, Math.min(this.block + 1, s.blocks.length - 1));
      else if (event.key === 'ArrowLeft') this.choose(this.chosen, Math.max(this.block - 1, -1));
      else if (event.key === 'Home') this.choose(0, -1);
      else if (event.key === 'End') this.choose(this.list.length - 1, -1);
      else return;
      event.preventDefault();
    });
  }
  table() {
    const {model} = this.app, number = name => ({name, number: true}), rows = this.list.slice(0, 500).map(s => ['0x' + (model.base + BigInt(s.addr)).toString(16), sizeText(s.size), countText(s.blocks.length), sizeText(s.live), sizeText(s.rounding + s.pending),
      sizeText(s.free), s.blocks.length ? 'no' : 'yes', model.lives.streams.names[0] && s.stream ? '0x' + s.stream.toString(16) : '0', model.facts.pools[s.pool] || '', s.joins ? 'yes' : 'no']);
    return table([{name: 'Address'}, number('Bytes'), number('Live blocks'), number('Live'), number('Rounding, pending'), number('Free'), {name: 'Returnable'}, {name: 'Stream'}, {name: 'Pool'}, {name: 'Expandable'}], rows,
      `Segments at the instant, largest first${this.list.length > 500 ? ', the first 500' : ''}`);
  }
}

class Lifes {
  constructor(app) {
    Object.assign(this, {app, canvas: $('lifes-c'), chosen: -1, list: []});
    this.tip = tipFor(this.canvas);
    this.draw = perFrame(() => this.drawAll());
    this.refill = tableBehind('lifes-t', () => this.table());
    for (const id of ['lifes-by', 'lifes-n', 'lifes-moving']) $(id).onchange = () => this.show();
    this.listen();
  }
  find() {
    const {app} = this, {lives} = app.model, {alloc, end, size} = lives, from = app.instant(app.lo), to = app.instant(app.hi), by = $('lifes-by').value, count = +$('lifes-n').value;
    const until = above(alloc, to), seen = new Int32Array(until), values = by === 'held' ? new Float64Array(until) : size;
    let n = 0;
    for (let i = 0; i < until; i++) {
      if (end[i] <= from) continue;
      seen[n++] = i;
      if (by === 'held') values[i] = size[i] * (Math.min(end[i], app.model.events + 1) - alloc[i]);
    }
    let list = seen.subarray(0, n);
    if ($('lifes-moving').checked) {
      const early = app.instant(app.lo + (app.hi - app.lo) / 10), moving = list.filter(i => alloc[i] > early || end[i] <= to);
      if (moving.length) list = moving;
    }
    this.list = largestOf(list, values, count);
    if (by === 'start') this.list.sort((a, b) => alloc[a] - alloc[b]);
    if (!this.list.includes(this.chosen)) this.chosen = -1;
  }
  show() { this.find(); this.draw(); this.refill(); }
  drawAll() {
    const {app} = this, {model} = app, {lives} = model, row = 15, {g} = canvasFor(this.canvas, this.list.length * row + 4), {x, width} = app.timeline.plot, X = t => app.timeline.toX(t);
    g.font = style.small;
    this.list.forEach((i, r) => {
      const y = r * row + 2, from = Math.max(x, X(lives.alloc[i])), to = Math.min(x + width, X(Math.min(lives.end[i], model.events)));
      g.fillStyle = style.quiet;
      g.textAlign = 'right';
      g.fillText(sizeText(lives.size[i]), x - 6, y + row / 2);
      g.textAlign = 'left';
      g.fillStyle = app.palette[model.category[i]].fill;
      g.fillRect(from, y + 1, Math.max(1.5, to - from), row - 3);
      if (i === this.chosen) { g.strokeStyle = style.accent; g.lineWidth = 2; g.strokeRect(from, y + 1, Math.max(3, to - from), row - 3); }
      const label = model.label(lives.stack[i]), inside = to - from > 150;
      g.fillStyle = inside ? inkOn(app.palette[model.category[i]].colour) : style.quiet;
      if (inside) fitText(g, label, from + 5, y + row / 2, to - from - 10);
      else if (to + 80 < x + width) fitText(g, label, to + 5, y + row / 2, x + width - to - 8);
      else { g.textAlign = 'right'; fitText(g, label, from - 5, y + row / 2, from - x - 8); g.textAlign = 'left'; }
    });
    const at = X(app.at);
    if (at < x || at > x + width) return;
    g.strokeStyle = style.accent;
    g.lineWidth = 1.5;
    g.beginPath(); g.moveTo(at, 0); g.lineTo(at, this.list.length * row + 4); g.stroke();
  }
  sentence(i) {
    const {model} = this.app, {lives} = model, made = lives.alloc[i] ? `made by event ${countText(lives.alloc[i])}` : 'made before the trace', gone = lives.end[i] === NEVER ? 'alive at the end' : `gone with event ${countText(lives.end[i])}`;
    return `${sizeText(lives.size[i])} ${this.app.palette[model.category[i]].name}, ${made}, ${gone}, ${model.label(lives.stack[i])}`;
  }
  choose(i) { this.chosen = i; $('lifes-d').textContent = safeText(this.sentence(i)); this.draw(); }
  listen() {
    const {canvas, app} = this, hit = event => this.list[Math.floor((pointIn(canvas, event)[1] - 2) / 15)];
    canvas.addEventListener('pointermove', event => { const i = hit(event); if (i === undefined) this.tip.hide(); else this.tip.show(...pointIn(canvas, event), [this.sentence(i)]); });
    canvas.addEventListener('pointerleave', () => this.tip.hide());
    canvas.addEventListener('click', event => { const i = hit(event); if (i !== undefined) { this.choose(i); app.setAt(Math.max(app.model.lives.alloc[i], 0)); } });
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
    return table([number('Bytes'), {name: 'Category'}, number('Made by event'), number('Gone with event'), {name: 'Stack'}], this.list.map(i => [sizeText(lives.size[i]), app.palette[model.category[i]].name, lives.alloc[i] ? countText(lives.alloc[i]) : 'before',
      lives.end[i] === NEVER ? 'alive' : countText(lives.end[i]), model.label(lives.stack[i])]), 'The largest allocations that live within the range in view');
  }
}
