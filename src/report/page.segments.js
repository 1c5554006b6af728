// The segment map, to scale: each segment is a strip whose length is its bytes, and long ones continue on the next line. Live
// blocks have the colour of their category, free bytes are hatched. Below it, the chosen segment over the whole width.

// Browsers draw canvases up to some 16,000 pixels high; what lies beyond has its row in the data table.
const MAP_ROW = 15, MAP_LINES = 400;

class SegmentMap {
  constructor(app) {
    Object.assign(this, {app, canvas: $('map-c'), wide: $('segment-c'), chosen: 0, block: -1, boxes: []});
    this.tip = tipFor(this.canvas);
    this.draw = perFrame(() => this.drawAll());
    this.refill = tableBehind('map-t', () => this.table());
    this.listen();
  }
  // Segments at the instant, largest first.
  find() {
    const {segments, sums} = this.app.state;
    this.list = segments.sort((a, b) => b.size - a.size || a.addr - b.addr);
    this.sums = sums;
    if (this.chosen >= this.list.length) this.chosen = 0;
    this.block = -1;
  }
  // Places strips on lines, largest first: boxes of {segment, from, to (bytes), line, x, width}.
  place(width) {
    const lines = Math.max(3, Math.min(30, Math.ceil(this.list.length / 3)));
    const perPixel = Math.max(this.sums.reserved, 1) / (width * lines), boxes = [];
    let x = 0, line = 0;
    this.list.forEach((segment, i) => {
      if (line >= MAP_LINES) return;
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
    const {app} = this, {lives, category} = app.model, scale = width / (to - from), {blocks, sizes} = segment;
    g.fillStyle = style.freeFill;
    g.fillRect(x, y, width, height);
    let first = 0, after = blocks.length;
    while (first < after) { // the first block that reaches beyond `from`
      const middle = first + after >>> 1;
      if (lives.addr[blocks[middle]] - segment.addr + sizes[middle] > from) after = middle; else first = middle + 1;
    }
    for (let b = first, drawn = -1; b < blocks.length; b++) {
      const i = blocks[b], at = lives.addr[i] - segment.addr;
      if (at >= to) break;
      const left = x + Math.max(0, at - from) * scale, right = x + Math.min(to - from, at + sizes[b] - from) * scale;
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
    g.strokeRect((lives.addr[i] - segment.addr) / segment.size * width + 1, 1, Math.max(3, segment.sizes[this.block] / segment.size * width - 2), 27);
  }
  show() {
    this.find();
    const {sums, list, app} = this, {model} = app;
    $('map').hidden = !model.hasSegments;
    $('map-sum').textContent = `${countText(list.length)} segments, ${sizeText(sums.reserved)} reserved`
      + (sums.pools ? `, ${sizeText(sums.pools)} of it in private pools, where ${sizeText(sums.poolsFree)} are free and unusable by others` : '')
      + '. To scale; hatched is free; a red frame is a private pool. empty_cache returns what is cached in wholly free segments.';
    $('map-d').textContent = list.length ? this.sentence() : '';
    this.draw();
    this.refill();
  }
  sentence() {
    const {app, chosen, block} = this, {model} = app, s = this.list[chosen];
    const segment = `Segment ${chosen + 1} of ${this.list.length}: ${this.addressOf(s)}, ${sizeText(s.size)}, `
      + `${countText(s.blocks.length)} live blocks, `
      + `${sizeText(s.free)} free${s.joins ? ', expandable' : ''}${s.pool ? `, private pool ${model.facts.pools[s.pool]}` : ''}`;
    if (block < 0) return segment;
    const i = s.blocks[block];
    const pending = model.pending(i, app.at) ? ' (pending)' : '', category = app.palette[model.category[i]].name;
    return safeText(`${segment}. Block ${block + 1}: ${sizeText(model.lives.size[i])} ${category}${pending}, ${model.address(i)}, `
      + model.label(model.lives.stack[i]));
  }
  addressOf(segment) { return '0x' + (this.app.model.base + BigInt(segment.addr)).toString(16); }
  choose(segment, block) {
    this.chosen = Math.max(0, Math.min(segment, this.list.length - 1));
    this.block = block;
    $('map-d').textContent = this.sentence();
    this.draw();
  }
  hit(event) {
    const [x, y] = pointIn(this.canvas, event), line = Math.floor(y / MAP_ROW);
    const box = this.boxes.find(b => b.line === line && x >= b.x && x < b.x + Math.max(2, b.width));
    return box ? {i: box.i, at: box.from + (x - box.x) / box.width * (box.to - box.from)} : null;
  }
  blockAt(segment, at) {
    const {addr} = this.app.model.lives;
    return segment.blocks.findIndex((i, b) => addr[i] - segment.addr <= at && at < addr[i] - segment.addr + segment.sizes[b]);
  }
  listen() {
    const {canvas, wide} = this;
    canvas.addEventListener('pointermove', event => {
      const hit = this.hit(event), [x, y] = pointIn(canvas, event);
      if (!hit) return this.tip.hide();
      this.choose(hit.i, this.blockAt(this.list[hit.i], hit.at));
      this.tip.show(x, y, [this.sentence()]);
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
    const {pools} = this.app.model.facts, number = name => ({name, number: true});
    const rows = this.list.slice(0, 500).map(s => [this.addressOf(s), sizeText(s.size), countText(s.blocks.length), sizeText(s.live),
      sizeText(s.rounding + s.pending), sizeText(s.free), sizeText(s.returnable), s.stream ? '0x' + s.stream.toString(16) : '0',
      pools[s.pool] || '', s.joins ? 'yes' : 'no']);
    const columns = [{name: 'Address'}, number('Bytes'), number('Live blocks'), number('Live'), number('Rounding, pending'), number('Free'),
      number('Returnable'), {name: 'Stream'}, {name: 'Pool'}, {name: 'Expandable'}];
    return table(columns, rows, `Segments at the instant, largest first${this.list.length > 500 ? ', the first 500' : ''}`);
  }
}
