// The timeline: live bytes stacked by category, the reserved line, lines of capacity and budget, bands and marks; and a strip of
// the whole below it. Both draw one column per pixel.
//
// Within a column memory may rise and fall. The stack shows the column's highest instant, and what lies above its lowest is
// paler, so that no peak is lost at any zoom and none looks longer than it was.
const MARGIN = {left: 64, right: 12, top: 8, bottom: 22}, BAND = 15;

class Timeline {
  constructor(app) {
    Object.assign(this, {app, canvas: $('timeline-c'), strip: $('overview-c'), drag: null, hover: null, cache: {}});
    this.tip = tipFor(this.canvas);
    this.draw = perFrame(() => this.drawAll());
    this.refill = tableBehind('timeline-t', () => this.table());
    this.bands = this.findBands();
    this.measure();
    this.listen();
  }
  measure() { this.plot = {x: MARGIN.left, width: Math.max(10, this.canvas.parentElement.clientWidth - MARGIN.left - MARGIN.right)}; }
  toX(t) { const {app, plot} = this; return plot.x + (app.unit(t) - app.lo) / (app.hi - app.lo) * plot.width; }
  toInstant(x) { const {app, plot} = this; return app.instant(app.lo + (x - plot.x) / plot.width * (app.hi - app.lo)); }

  // ---- Bands: steps, and annotations by nesting. Each is {from, to, name} in instants. ----
  findBands() {
    const {model} = this.app, rows = [];
    if (model.facts.steps.length) rows.push({title: 'steps',
      list: model.facts.steps.map(([first, count], i) => ({from: first, to: first + count, name: `step ${i + 1}`}))});
    const stages = model.stages.map(({from, stage}, i) => ({from, to: model.stages[i + 1]?.from ?? model.events,
      name: model.facts.stages[stage], stage}));
    if (stages.length > 1) rows.push({title: 'stages', list: stages.filter(band => band.stage)});
    const nested = [], open = [];
    for (const {us, name, end} of model.annotations) {
      const text = model.strings[name], depth = open.length, t = above(model.time, us) - 1;
      if (!end) open.push({from: Math.max(0, t), name: text, depth});
      else for (let i = open.length - 1; i >= 0; i--)
        if (open[i].name === text) { const [band] = open.splice(i, 1);
          (nested[band.depth] ||= []).push({...band, to: Math.max(t, band.from)}); break; }
    }
    for (const band of open) (nested[band.depth] ||= []).push({...band, to: model.events});
    nested.slice(0, 3).forEach((list, i) => { if (list) rows.push({title: i ? '' : 'notes', list: list.sort((a, b) => a.from - b.from)}); });
    return rows;
  }

  // ---- Columns ----
  columns(width, lo, hi, slot) {
    const key = [width, lo, hi, this.app.axis].join(), {app} = this;
    if (this.cache[slot]?.key === key) return this.cache[slot].columns;
    const edges = new Int32Array(width + 1);
    for (let p = 0; p <= width; p++) edges[p] = app.instant(lo + p / width * (hi - lo));
    const columns = app.model.levels.columns(edges);
    columns.edges = edges;
    this.cache[slot] = {key, columns};
    return columns;
  }

  // ---- Drawing ----
  drawAll() {
    const start = performance.now();
    this.measure();
    this.drawMain();
    this.drawStrip();
    performance.measure('report:frame', {start, end: performance.now()});
  }
  area(g, columns, x, y, bottom, labels = false) {
    const {model, palette} = this.app, width = model.levels.width, floor = new Float64Array(columns.count), places = [];
    for (const c of model.order) {
      const path = new Path2D();
      let any = false;
      for (let p = 0; p < columns.count; p++) {
        const value = columns.top[p * width + c], high = y(floor[p] + value);
        if (p === 0) path.moveTo(x, high); else path.lineTo(x + p, high);
        path.lineTo(x + p + 1, high);
        any ||= value > 0;
      }
      if (any && labels) places.push(...this.labelPlace(g, c, columns, floor, y));
      for (let p = columns.count - 1; p >= 0; p--) {
        const low = Math.min(bottom, y(floor[p]));
        path.lineTo(x + p + 1, low);
        path.lineTo(x + p, low);
        floor[p] += columns.top[p * width + c];
      }
      if (!any) continue;
      g.fillStyle = palette[c].fill;
      g.fill(path);
    }
    return places;
  }
  // Where the name of a category fits into its band: the place of its width where the band is thickest throughout.
  labelPlace(g, c, columns, floor, y) {
    const {width} = this.app.model.levels, need = Math.ceil(g.measureText(this.app.palette[c].name).width) + 10, stride = 4;
    let best = null;
    for (let p = 4; p + need < columns.count; p += stride) {
      let low = Infinity, high = -Infinity;
      for (let q = p; q < p + need; q += stride) {
        low = Math.min(low, y(floor[q]));
        high = Math.max(high, y(floor[q] + columns.top[q * width + c]));
        if (low - high < 14) { p = q; break; }
      }
      if (low - high >= 14 && (!best || low - high > best.height + 6)) best = {c, p, height: low - high, y: (low + high) / 2};
    }
    return best ? [best] : [];
  }
  veil(g, columns, x, y) {
    const path = new Path2D();
    for (let p = 0; p < columns.count; p++) {
      const high = y(columns.most[p]), low = y(columns.least[p]);
      if (low > high) path.rect(x + p, high, 1, low - high);
    }
    g.save();
    g.globalAlpha = 0.42;
    g.fillStyle = style.sheet;
    g.fill(path);
    g.restore();
  }
  // Above the line, where it is level.
  nameReserved(g, columns, x, y, top) {
    const {reserved, count} = columns;
    for (let p = 10; p + 60 < count; p += 10)
      if (reserved[p] > 0 && [30, 60].every(ahead => Math.abs(y(reserved[p]) - y(reserved[p + ahead])) < 2))
        return haloText(g, 'reserved', x + p, Math.max(top + 7, y(reserved[p]) - 9));
  }
  line(g, values, x, y) {
    g.beginPath();
    values.forEach((value, p) => { g.lineTo(x + p, y(value)); g.lineTo(x + p + 1, y(value)); });
    g.stroke();
  }
  scale(columns) {
    const {facts} = this.app.model, seen = largestIn(columns.reserved, largestIn(columns.most, 1));
    const whole = Math.max(facts.peakReserved, facts.peakLive, 1), near = facts.lines.filter(line => line.bytes <= 3 * whole);
    const other = this.other ? largestIn(this.other.filter(part => part.to >= this.app.lo && part.from <= this.app.hi).map(part => part.live), 0) : 0;
    return {top: Math.max(seen, other, ...near.map(line => line.bytes)) * 1.06, near, far: facts.lines.filter(line => line.bytes > 3 * whole)};
  }
  drawMain() {
    const {app} = this, bands = this.bands.length * BAND, top = MARGIN.top + bands + 12;
    const height = Math.max(220, Math.min(340, innerHeight * 0.42)) + bands, bottom = height - MARGIN.bottom;
    const {g} = canvasFor(this.canvas, height), {x, width: inner} = this.plot, columns = this.last = this.columns(inner, app.lo, app.hi, 'main');
    const {top: most, near, far} = this.scale(columns), y = bytes => bottom - bytes / most * (bottom - top);
    this.grid(g, x, inner, top, bottom, most, y);
    this.drawStack(g, columns, x, inner, y, top, bottom);
    if (app.model.facts.against) this.drawOther(g, x, inner, y, top, bottom);
    this.drawBands(g, x, inner);
    this.limits(g, near, far, x, inner, y, top);
    this.marks(g, x, inner, top, bottom);
    this.cursor(g, x, inner, top, bottom, y);
    this.describe();
  }
  // The other snapshot's parts on this scale, from its own beginning.
  get other() {
    const {app} = this, {against} = app.model.facts, byTime = app.axis === 'time';
    if (!against) return null;
    if (this.parts?.axis === app.axis) return this.parts.list;
    let from = 0;
    const list = against.levels.map(([event, us, live, reserved]) => {
      const part = {from, to: byTime ? us : event, live, reserved};
      from = part.to;
      return part;
    });
    this.parts = {axis: app.axis, list};
    return list;
  }
  drawOther(g, x, inner, y, top, bottom) {
    const {app} = this, place = unit => x + (unit - app.lo) / (app.hi - app.lo) * inner;
    g.save();
    g.beginPath();
    g.rect(x, top - 4, inner, bottom - top + 5);
    g.clip();
    g.lineJoin = 'round';
    g.beginPath();
    for (const {from, to, live} of this.other) {
      if (to < app.lo || from > app.hi) continue;
      g.lineTo(place(from), y(live));
      g.lineTo(place(to), y(live));
    }
    for (const [colour, width] of [[style.sheet, 4], [style.alarm, 1.75]]) { // on any colour below it
      g.strokeStyle = colour;
      g.lineWidth = width;
      g.stroke();
    }
    g.restore();
  }
  drawStack(g, columns, x, inner, y, top, bottom) {
    const {app} = this;
    g.save();
    g.beginPath();
    g.rect(x, 0, inner, bottom + 1);
    g.clip();
    const places = this.area(g, columns, x, y, bottom, true);
    this.veil(g, columns, x, y);
    g.font = style.font;
    for (const place of places) {
      g.fillStyle = inkOn(app.palette[place.c].colour);
      g.fillText(safeText(app.palette[place.c].name), x + place.p + 5, place.y);
    }
    if (app.model.hasSegments) {
      g.strokeStyle = g.fillStyle = style.ink;
      g.lineWidth = 1.5;
      this.line(g, columns.reserved, x, y);
      if (columns.count > 200) this.nameReserved(g, columns, x, y, top);
    }
    g.restore();
  }
  grid(g, x, inner, top, bottom, most, y) {
    g.strokeStyle = style.line;
    g.lineWidth = 1;
    g.fillStyle = style.quiet;
    g.font = style.small;
    g.textAlign = 'right';
    const step = steps(most, Math.max(2, (bottom - top) / 45), true);
    for (let bytes = 0; bytes <= most; bytes += step) {
      g.beginPath(); g.moveTo(x, Math.round(y(bytes)) + 0.5); g.lineTo(x + inner, Math.round(y(bytes)) + 0.5); g.stroke();
      g.fillText(sizeText(bytes).replace(/\.0+ /, ' '), x - 6, y(bytes));
    }
    g.textAlign = 'center';
    const {app} = this, span = app.hi - app.lo, stride = steps(span, Math.max(2, inner / 110), false);
    for (let u = Math.ceil(app.lo / stride) * stride; u <= app.hi; u += stride) {
      const at = x + (u - app.lo) / span * inner, text = app.axis === 'time' ? timeText(u) : countText(u);
      g.beginPath(); g.moveTo(at, bottom); g.lineTo(at, bottom + 4); g.stroke();
      if (at > x + 20 && at < x + inner - 24 || u === 0) g.fillText(text, Math.max(at, x + 12), bottom + 13);
    }
    g.textAlign = 'left';
  }
  // Bands thinner than a pixel become one shade: at most one is drawn per pixel.
  drawBands(g, x, inner) {
    g.font = style.small;
    this.bands.forEach(({list}, r) => {
      const y = MARGIN.top + r * BAND, starts = list.starts ||= Float64Array.from(list, band => band.from);
      let drawn = x, last = this.app.instant(this.app.hi);
      for (let i = Math.max(0, above(starts, this.app.instant(this.app.lo)) - 1); i < list.length && list[i].from <= last;) {
        const band = list[i], from = Math.max(this.toX(band.from), drawn), to = Math.min(this.toX(band.to), x + inner), wide = to - from;
        if (wide >= 1) {
          g.fillStyle = i % 2 ? style.line : style.free;
          g.globalAlpha = 0.55;
          g.fillRect(from, y, wide - (wide > 4 ? 1 : 0), BAND - 2);
          g.globalAlpha = 1;
          g.fillStyle = style.ink;
          if (wide > 24) fitText(g, band.name, from + 4, y + BAND / 2 - 1, wide - 6);
          drawn = to;
          i++;
        } else { // on to the first that reaches the next pixel
          const next = above(starts, this.toInstant(drawn + 1));
          g.fillStyle = style.line;
          g.fillRect(drawn, y, 1, BAND - 2);
          drawn += 1;
          i = Math.max(i + 1, next - 1);
        }
      }
      g.fillStyle = style.quiet;
      g.textAlign = 'right';
      g.fillText(this.bands[r].title, x - 6, y + BAND / 2 - 1);
      g.textAlign = 'left';
    });
  }
  limits(g, near, far, x, inner, y, top) {
    g.font = style.font;
    for (const {name, bytes} of near) {
      g.strokeStyle = g.fillStyle = style.alarm;
      g.setLineDash([6, 4]);
      g.lineWidth = 1.5;
      g.beginPath(); g.moveTo(x, y(bytes)); g.lineTo(x + inner, y(bytes)); g.stroke();
      g.setLineDash([]);
      haloText(g, safeText(`${name} ${sizeText(bytes)}`), x + 8, y(bytes) - 9 < top - 8 ? y(bytes) + 10 : y(bytes) - 9);
    }
    g.fillStyle = style.quiet;
    g.textAlign = 'right';
    if (far.length) haloText(g, safeText(far.map(line => `${line.name} ${sizeText(line.bytes)}`).join(', ')) + ' ↑ above this scale',
      x + inner - 6, top + 4);
    g.textAlign = 'left';
  }
  // Names of marks are left out where they would cover another mark or its name; the last out-of-memory event comes first.
  marks(g, x, inner, top, bottom) {
    const {facts} = this.app.model, marks = facts.ooms.map(oom => ({t: oom.event + 1, text: 'out of memory', colour: style.alarm})).reverse();
    marks.push({t: facts.peakEvent + 1, text: 'peak', colour: style.ink});
    const shown = marks.map(mark => ({...mark, at: this.toX(mark.t)})).filter(({at}) => at >= x - 1 && at <= x + inner + 1);
    const taken = shown.map(({at}) => [at - 6, at + 6]);
    g.font = style.small;
    shown.forEach(({at, text, colour}) => {
      g.strokeStyle = g.fillStyle = colour;
      g.lineWidth = 1;
      g.setLineDash([2, 3]);
      g.beginPath(); g.moveTo(at, top - 4); g.lineTo(at, bottom); g.stroke();
      g.setLineDash([]);
      g.beginPath(); g.moveTo(at - 5, top - 11); g.lineTo(at + 5, top - 11); g.lineTo(at, top - 3); g.fill();
      const width = g.measureText(text).width, left = at + 8 + width > x + inner ? at - 8 - width : at + 8;
      if (taken.some(([from, to]) => left < to && left + width > from)) return;
      taken.push([left, left + width]);
      haloText(g, text, left, top - 6);
    });
  }
  cursor(g, x, inner, top, bottom, y) {
    const {app} = this, at = this.toX(app.at);
    if (this.drag?.moved) {
      const [from, to] = [this.drag.from, this.drag.to].sort((a, b) => a - b);
      g.fillStyle = style.accent;
      g.globalAlpha = 0.2;
      g.fillRect(from, top, to - from, bottom - top);
      g.globalAlpha = 1;
    }
    if (at >= x - 1 && at <= x + inner + 1) {
      g.strokeStyle = g.fillStyle = style.accent;
      g.lineWidth = 2;
      g.beginPath(); g.moveTo(at, top - 2); g.lineTo(at, bottom); g.stroke();
      g.beginPath(); g.arc(at, y(app.liveBytes), 4, 0, 7); g.fill();
    }
    if (this.hover !== null && this.hover >= x && this.hover <= x + inner) {
      g.strokeStyle = style.quiet;
      g.lineWidth = 1;
      g.beginPath(); g.moveTo(this.hover + 0.5, top); g.lineTo(this.hover + 0.5, bottom); g.stroke();
    }
  }
  // The whole never changes: it is drawn once per width, theme and scale.
  wholePicture(width, height, x, inner) {
    const {app} = this, key = [width, devicePixelRatio, app.axis, style.ink].join();
    if (this.whole?.key === key) return this.whole.canvas;
    const canvas = document.createElement('canvas'), g = canvas.getContext('2d');
    const columns = this.columns(inner, 0, app.span, 'strip'), most = largestIn(columns.most, 1);
    canvas.width = this.strip.width;
    canvas.height = this.strip.height;
    g.scale(canvas.width / width, canvas.height / height);
    this.area(g, columns, x, bytes => height - 2 - bytes / most * (height - 6), height - 2);
    this.whole = {key, canvas};
    return canvas;
  }
  drawStrip() {
    const {app} = this, {g, width, height} = canvasFor(this.strip, 40), {x, width: inner} = this.plot;
    g.drawImage(this.wholePicture(width, height, x, inner), 0, 0, width, height);
    const from = x + app.lo / app.span * inner, to = x + app.hi / app.span * inner, at = x + app.unit(app.at) / app.span * inner;
    g.fillStyle = style.sheet;
    g.globalAlpha = 0.65;
    g.fillRect(x, 0, from - x, height);
    g.fillRect(to, 0, x + inner - to, height);
    g.globalAlpha = 1;
    g.strokeStyle = style.accent;
    g.lineWidth = 1.5;
    g.strokeRect(from + 0.5, 1, Math.max(2, to - from - 1), height - 2);
    g.beginPath(); g.moveTo(at, 0); g.lineTo(at, height); g.stroke();
  }
  describe() {
    const {app, canvas} = this;
    canvas.setAttribute('aria-valuemin', 0);
    canvas.setAttribute('aria-valuemax', app.model.events);
    canvas.setAttribute('aria-valuenow', app.at);
    canvas.setAttribute('aria-valuetext', app.sentence());
  }
  table() {
    const {app} = this, {model} = app, count = 60, edges = new Int32Array(count + 1), {width} = model.levels;
    for (let p = 0; p <= count; p++) edges[p] = app.instant(app.lo + p / count * (app.hi - app.lo));
    const columns = model.levels.columns(edges), rows = [];
    for (let p = 0; p < count; p++) {
      if (p && edges[p + 1] === edges[p]) continue;
      rows.push([`${countText(edges[p])} – ${countText(edges[p + 1])}`, model.hasTime ? timeText(model.timeOf(edges[p])) : '–',
        sizeText(columns.most[p]), sizeText(columns.least[p]),
        ...(model.hasSegments ? [sizeText(columns.reserved[p])] : []), ...model.order.map(c => sizeText(columns.top[p * width + c]))]);
    }
    const number = name => ({name, number: true});
    return table([{name: 'Events'}, number('From'), number('Most live'), number('Least live'), ...(model.hasSegments ? [number('Reserved')] : []),
      ...model.order.map(c => number(model.categories[c]))], rows,
        'Memory over the range in view, in up to 60 parts; categories at the highest instant of each');
  }

  // ---- Input ----
  listen() {
    const {canvas, strip, app} = this;
    canvas.addEventListener('wheel', event => {
      event.preventDefault();
      const scale = event.deltaMode ? 30 : 1, span = app.hi - app.lo;
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (sideways) app.setView(app.lo + (event.deltaX || event.deltaY) * scale / 1000 * span, null);
      else app.zoom(Math.exp(event.deltaY * scale / 400), app.lo + (pointIn(canvas, event)[0] - this.plot.x) / this.plot.width * span);
    }, {passive: false});
    canvas.addEventListener('pointerdown', event => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      const [x] = pointIn(canvas, event);
      this.drag = {from: x, to: x, moved: false, pan: event.pointerType === 'touch' || event.shiftKey, lo: app.lo};
    });
    canvas.addEventListener('pointermove', event => this.move(event));
    canvas.addEventListener('pointerup', event => this.release(event));
    canvas.addEventListener('pointercancel', () => { this.drag = null; this.draw(); });
    canvas.addEventListener('pointerleave', () => { this.hover = null; this.tip.hide(); this.draw(); });
    canvas.addEventListener('dblclick', () => app.setView(0, app.span));
    canvas.addEventListener('keydown', event => this.key(event));
    const slide = event => {
      const [x] = pointIn(strip, event), middle = (x - this.plot.x) / this.plot.width * app.span, span = app.hi - app.lo;
      app.setView(middle - span / 2, null);
    };
    strip.addEventListener('pointerdown', event => { strip.setPointerCapture(event.pointerId); slide(event); });
    strip.addEventListener('pointermove', event => { if (event.buttons) slide(event); });
  }
  move(event) {
    const {canvas, app, drag} = this, [x, y] = pointIn(canvas, event);
    this.hover = x;
    if (drag) {
      drag.to = x;
      drag.moved ||= Math.abs(x - drag.from) > 4;
      if (drag.pan && drag.moved) app.setView(drag.lo - (x - drag.from) / this.plot.width * (app.hi - app.lo), null);
    }
    this.draw();
    this.tell(x, y);
  }
  // The tip: the column under the pointer and its largest categories.
  tell(x, y) {
    const p = Math.floor(x - this.plot.x), columns = this.last;
    if (!columns || p < 0 || p >= columns.count) return this.tip.hide();
    const {model, palette} = this.app, {width} = model.levels, from = columns.edges[p], to = columns.edges[p + 1];
    const most = columns.most[p], least = columns.least[p], parts = model.order.map(c => ({c, bytes: columns.top[p * width + c]}));
    const largest = parts.filter(part => part.bytes > 0).sort((a, b) => b.bytes - a.bytes).slice(0, 5);
    this.tip.show(x, y, [
      `event ${countText(from)}${to - from > 1 ? ` – ${countText(to)}` : ''}${model.hasTime ? ', ' + timeText(model.timeOf(to)) : ''}`,
      `live ${sizeText(most)}${least < most ? ` (least ${sizeText(least)})` : ''}`,
      ...(model.hasSegments ? [`reserved ${sizeText(columns.reserved[p])}`] : []),
      ...largest.map(part => `${palette[part.c].name} ${sizeText(part.bytes)}`)]);
  }
  release(event) {
    const {drag, app} = this;
    this.drag = null;
    if (!drag) return;
    const [x] = pointIn(this.canvas, event);
    if (!drag.moved) app.setAt(this.highest(x));
    else if (!drag.pan) {
      const {plot} = this, unit = at => app.lo + Math.max(0, Math.min(1, (at - plot.x) / plot.width)) * (app.hi - app.lo);
      app.setView(Math.min(unit(drag.from), unit(x)), Math.max(unit(drag.from), unit(x)));
    }
    this.draw();
  }
  // The instant of most live bytes within the pixel: what the picture shows there.
  highest(x) {
    const {levels} = this.app.model, from = this.toInstant(x), to = Math.max(from, this.toInstant(x + 1));
    const state = levels.at(from), column = levels.columnFor();
    if (to - from > 2e6) return to;
    levels.begin(column, state);
    levels.walk(state, to, column);
    return column.at;
  }
  key(event) {
    const {app} = this, span = app.hi - app.lo, stride = event.shiftKey ? Math.max(1, Math.round(app.model.events / 100)) : 1;
    const moves = {ArrowRight: () => app.setAt(app.at + stride), ArrowLeft: () => app.setAt(app.at - stride),
      Home: () => app.setAt(0), End: () => app.setAt(app.model.events),
      PageDown: () => app.setView(app.lo + span / 2, null), PageUp: () => app.setView(app.lo - span / 2, null),
      '+': () => app.zoom(0.5), '=': () => app.zoom(0.5), '-': () => app.zoom(2), 0: () => app.setView(0, app.span)};
    if (event.ctrlKey || event.metaKey || event.altKey || !moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
    if (event.key.startsWith('Arrow') || event.key === 'Home' || event.key === 'End') app.reveal();
  }
}
