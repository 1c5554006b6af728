// The page: one instant and one range in view, shared by all pictures.
// A pause longer than everything else would squeeze the work into a line.
function hasLongPause({time, events}) {
  let longest = 0;
  for (let k = 1; k <= events; k++) longest = Math.max(longest, time[k] - time[k - 1]);
  return longest * 2 > time[events];
}

class App {
  constructor(model) {
    this.model = model;
    this.palette = paletteFor(model.categories);
    this.axis = model.hasTime && !hasLongPause(model) ? 'time' : 'event';
    this.lo = 0;
    this.hi = this.span;
    this.setTheme(null);
    this.timeline = new Timeline(this);
    this.live_ = new Live(this);
    this.flame = new Flame(this);
    this.map = new SegmentMap(this);
    this.spans = new Spans(this);
    this.table = new Allocations(this);
    this.fixed();
    this.listen();
  }
  // ---- Scale: `unit` is microseconds or events ----
  get span() { return Math.max(1, this.axis === 'time' ? this.model.time[this.model.events] : this.model.events); }
  unit(t) { return this.axis === 'time' ? this.model.timeOf(t) : t; }
  instant(unit) {
    const t = this.axis === 'time' ? above(this.model.time, unit) - 1 : Math.floor(unit);
    return Math.max(0, Math.min(t, this.model.events));
  }
  setAxis(axis) {
    const from = this.instant(this.lo), to = this.instant(this.hi);
    this.axis = axis;
    this.setView(this.unit(from), this.unit(to));
    this.buttons();
  }
  // `hi` null: as wide as now. A view is never narrower than a few events, nor outside the whole.
  setView(lo, hi) {
    const least = this.axis === 'time' ? Math.min(this.span, 5) : Math.min(this.span, 8),
      width = Math.max(least, Math.min(this.span, hi === null ? this.hi - this.lo : hi - lo));
    this.lo = Math.max(0, Math.min(lo, this.span - width));
    this.hi = this.lo + width;
    this.timeline.draw();
    this.timeline.refill();
    clearTimeout(this.later);
    this.later = setTimeout(() => { this.spans.show(); if ($('table-scope').value === 'view') this.table.show(); }, 80);
  }
  zoom(factor, around = this.unit(this.at)) {
    const middle = around < this.lo || around > this.hi ? (this.lo + this.hi) / 2 : around;
    this.setView(middle - (middle - this.lo) * factor, middle + (this.hi - middle) * factor);
  }
  reveal() {
    const at = this.unit(this.at), span = this.hi - this.lo;
    if (at < this.lo || at > this.hi) this.setView(at - span / 2, null);
  }
  setAt(t) {
    const start = performance.now(), {model} = this;
    this.at = Math.max(0, Math.min(Math.round(t), model.events));
    this.live = model.liveAt(this.at);
    this.state = stateAt(model, this.at);
    this.blocks = new Map(this.state.segments.flatMap(s => s.blocks.map((i, b) => [i, s.sizes[b]])));
    this.liveBytes = this.live.reduce((sum, i) => sum + model.lives.size[i], 0);
    this.reserved = model.levels.at(this.at).reserved;
    this.timeline.draw();
    this.live_.show();
    this.flame.weigh();
    this.flame.draw();
    this.flame.refill();
    this.map.show();
    this.sums();
    this.spans.draw();
    if ($('table-scope').value === 'live') this.table.show();
    $('instant-text').textContent = this.sentence();
    clearTimeout(this.speak);
    this.speak = setTimeout(() => { $('announce').textContent = this.sentence(); }, 400);
    performance.measure('report:instant', {start, end: performance.now()});
  }
  sentence() {
    const {model, at} = this, when = at ? `After event ${countText(at)} of ${countText(model.events)}` : 'Before the first event';
    const live = `${sizeText(this.liveBytes)} live in ${countText(this.live.length)} allocations`, [, , pending] = this.state.sums.parts;
    return (model.hasTime ? `${when}, ${timeText(model.timeOf(at))}: ` : `${when}: `) + live
      + (pending ? `, ${sizeText(pending)} ${model.facts.parts[2]}` : '') + (model.hasSegments ? `, ${sizeText(this.reserved)} reserved` : '');
  }
  // What the block of a life takes: at the instant where it is live then, else what its request comes to.
  blockOf(life) { return this.blocks.get(life) ?? this.model.lives.block[life]; }
  sums() {
    const oom = this.model.facts.ooms.find(({event}) => event + 1 === this.at);
    $('sums').replaceChildren(...(this.model.hasSegments ? sumsBar(this.model, this.state.sums, oom ? oom.deviceFree : 0) : []));
  }
  fixed() {
    const {model} = this, {facts} = model, go = (text, t) => el('button', {type: 'button', onclick: () => this.go(t)}, text);
    $('source').textContent = sourceText(model);
    $('facts').replaceChildren(figures(model), el('div', {id: 'sums'}), notes(model));
    $('against').hidden = !facts.against;
    if (facts.against) {
      $('against-h').textContent = safeText(`Compared with ${facts.against.title}`);
      $('against-body').replaceChildren(...againstParts(model));
    }
    $('legend').replaceChildren(...model.order.slice().reverse().map(c => el('li', {}, swatch(this, c), this.palette[c].name)),
      el('li', {className: 'quiet'}, 'paler: not all the time within the pixel'),
      ...(facts.against ? [el('li', {}, el('span', {className: 'swatch before'}), `live in ${facts.against.title}`)] : []));
    $('more-body').replaceChildren(...(facts.ooms.length ? failuresTable(model, go) : []), ...(facts.growth.length ? growthTable(model) : []),
      ...(facts.steps.length ? stepsTable(model, go) : []));
    $('more').hidden = !$('more-body').children.length;
  }
  // ---- Buttons, keys, theme ----
  buttons() {
    $('axis-time').setAttribute('aria-pressed', this.axis === 'time');
    $('axis-event').setAttribute('aria-pressed', this.axis === 'event');
    $('axis-time').disabled = !this.model.hasTime;
  }
  nextOom() {
    const {ooms} = this.model.facts, next = ooms.find(oom => oom.event + 1 > this.at) || ooms[0];
    if (next) this.go(next.event + 1);
  }
  go(t) { this.setAt(t); this.reveal(); }
  listen() {
    const {facts} = this.model;
    $('go-peak').onclick = () => this.go(facts.peakEvent + 1);
    $('go-oom').onclick = () => this.nextOom();
    $('go-oom').hidden = !facts.ooms.length;
    $('go-end').onclick = () => this.go(this.model.events);
    $('go-event').onchange = event => { const t = +event.target.value.replace(/[^0-9]/g, ''); if (event.target.value) this.go(t); };
    $('axis-time').onclick = () => this.setAxis('time');
    $('axis-event').onclick = () => this.setAxis('event');
    $('zoom-in').onclick = () => this.zoom(0.5);
    $('zoom-out').onclick = () => this.zoom(2);
    $('zoom-all').onclick = () => this.setView(0, this.span);
    $('theme').onclick = () => this.setTheme({system: 'light', light: 'dark', dark: 'system'}[this.theme]);
    $('keys-open').onclick = () => this.keys();
    addEventListener('keydown', event => this.key(event));
    new ResizeObserver(perFrame(() => this.redraw())).observe($('timeline'));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.recolour());
    addEventListener('beforeprint', () => { this.printed = this.theme; this.setTheme('light'); this.drawNow(); });
    addEventListener('afterprint', () => this.setTheme(this.printed));
  }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || $('keys').open) return;
    const to = (section, focus) => () => { $(section).scrollIntoView(); $(focus).focus({preventScroll: true}); };
    const keys = {p: () => $('go-peak').click(), o: () => this.nextOom(), e: () => $('go-end').click(), '?': () => this.keys(),
      d: () => $('theme').click(), t: to('timeline', 'timeline-c'), f: to('flame', 'flame-c'), m: to('map', 'map-c'), '/': to('table', 'table-q')};
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }
  keys() {
    const rows = [
      ['p  o  e', 'go to the peak, the next out-of-memory event, the end'],
      ['t  f  m  /', 'to the timeline, the flame view, the segments, the search'],
      ['d', 'theme: system, light, dark'],
      ['← →', 'timeline: event by event (with Shift: a hundredth of all); flame: beside; segments: block by block'],
      ['↑ ↓', 'flame: up and down the stack; segments and lives: row by row'],
      ['+  −  0', 'timeline: zoom in, out, all'],
      ['PageUp PageDown', 'timeline: move by half a view'],
      ['Enter, Escape', 'flame: into the chosen frame, back out']];
    $('keys-body').replaceChildren(table([{name: 'Key'}, {name: 'Does'}], rows.map(([key, text]) => [el('kbd', {}, key), text]), 'Keys'));
    $('keys').showModal();
  }
  setTheme(theme) {
    this.theme = theme || 'system';
    const root = document.documentElement;
    if (this.theme === 'system') delete root.dataset.theme; else root.dataset.theme = this.theme;
    $('theme').textContent = `Theme: ${this.theme}`;
    this.recolour();
  }
  recolour() {
    readStyle(this.palette);
    if (this.live) { this.fixed(); this.sums(); this.live_.show(); this.table.show(); this.redraw(); }
  }
  redraw() { for (const view of [this.timeline, this.flame, this.map, this.spans]) view.draw(); }
  drawNow() { for (const view of [this.timeline, this.flame, this.map, this.spans]) view.drawAll(); }
}

async function open() {
  performance.mark('report:start');
  const source = $('data'), data = await readData(source.textContent);
  source.remove();
  performance.mark('report:read');
  const model = new Model(data);
  performance.mark('report:decoded');
  $('rest').hidden = false;
  const app = new App(model);
  app.buttons();
  app.setAt(model.facts.atEvent + 1);
  app.spans.show();
  $('loading').remove();
  requestAnimationFrame(() => requestAnimationFrame(() => performance.mark('report:painted')));
}

open().catch(error => {
  const old = typeof DecompressionStream === 'undefined';
  $('loading').textContent = old ? 'This browser is too old to unpack the data: use one of 2024 or later.'
    : `The data of this file cannot be read: ${error.message}`;
  $('loading').className = 'warn';
});
