// What the pictures are drawn from: bytes by category at any instant, the live set, segments, labels of stacks.
//
// Levels are found from buckets of events: each keeps the state at its beginning and its extremes (least, most, and the state
// where it was most), so that a column of any width is exact: wide ones from whole buckets, narrow ones by walking events.
const MAX_CATEGORIES = 13;

// First index whose value is above `value`, in an array that never falls.
function above(array, value, count = array.length) {
  let low = 0, high = count;
  while (low < high) {
    const middle = low + high >>> 1;
    if (array[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

// Lives that end within the trace, by end (a counting sort).
function orderEnds(lives, events) {
  const first = new Int32Array(events + 2);
  let count = 0;
  for (let i = 0; i < lives.count; i++) if (lives.end[i] <= events) { first[lives.end[i]]++; count++; }
  for (let t = 0, sum = 0; t <= events; t++) { const here = first[t]; first[t] = sum; sum += here; }
  const order = new Int32Array(count), at = new Int32Array(count);
  for (let i = 0; i < lives.count; i++) {
    if (lives.end[i] > events) continue;
    const place = first[lives.end[i]]++;
    order[place] = i;
    at[place] = lives.end[i];
  }
  return {order, at, count};
}

// Categories with least bytes made, beyond what a picture can tell apart, become one: "others".
// Several may have one name ("unknown": what the file says, and what it does not).
function fewCategories(names, lives) {
  const made = new Float64Array(65536), count = new Uint32Array(65536), byName = new Map();
  const first = names.map((name, c) => { if (!byName.has(name)) byName.set(name, c); return byName.get(name); });
  for (let i = 0; i < lives.count; i++) {
    const c = first[lives.category[i]] ?? 0;
    made[c] += lives.size[i];
    count[c]++;
  }
  const used = [...made.keys()].filter(c => count[c]).sort((a, b) => made[b] - made[a]);
  const kept = used.length > MAX_CATEGORIES ? used.slice(0, MAX_CATEGORIES - 1) : used;
  const place = new Uint8Array(65536).fill(kept.length), list = kept.map(c => names[c] || 'unknown');
  kept.forEach((c, k) => { place[c] = k; });
  if (kept.length < used.length || !used.length) list.push(used.length ? 'others' : 'unknown');
  return {list, column: Uint8Array.from(lives.category, c => place[first[c] ?? 0])};
}

class Levels {
  constructor(lives, ends, segments, startReserved, categories, column, events) {
    Object.assign(this, {lives, ends, column, events, width: categories});
    this.segmentAt = Int32Array.from(segments, s => s.t);
    this.segmentBytes = Float64Array.from(segments, s => s.action & 1 ? -s.size : s.size);
    this.bucket = 16;
    while ((events + 1) / this.bucket > 65536) this.bucket *= 2;
    this.buckets = Math.floor(events / this.bucket) + 1;
    const many = this.buckets * categories;
    this.start = new Float64Array(many); this.top = new Float64Array(many);
    this.most = new Float64Array(this.buckets); this.least = new Float64Array(this.buckets); this.reserved = new Float64Array(this.buckets);
    this.startReserved = new Float64Array(this.buckets);
    this.fill(startReserved);
  }
  fill(startReserved) {
    const {lives, width, bucket} = this, state = {t: 0, a: 0, b: 0, s: 0, total: 0, reserved: startReserved, bytes: new Float64Array(width)};
    for (; state.a < lives.count && lives.alloc[state.a] === 0; state.a++) this.add(state, state.a, 1);
    const column = this.columnFor();
    this.total = {most: 0, at: 0, reserved: 0};
    for (let k = 0; k < this.buckets; k++) {
      this.start.set(state.bytes, k * width);
      this.startReserved[k] = state.reserved;
      this.begin(column, state);
      this.walk(state, Math.min((k + 1) * bucket - 1, this.events), column);
      this.top.set(column.top, k * width);
      this.most[k] = column.most; this.least[k] = column.least; this.reserved[k] = column.reserved;
      if (column.most > this.total.most) { this.total.most = column.most; this.total.at = column.at; }
      if (column.reserved > this.total.reserved) this.total.reserved = column.reserved;
      // The first instant of the next bucket belongs to it, with the state that it begins with.
      if (k + 1 < this.buckets) this.walk(state, (k + 1) * bucket, null);
    }
  }
  add(state, life, sign) {
    const bytes = sign * this.lives.size[life];
    state.bytes[this.column[life]] += bytes;
    state.total += bytes;
  }
  columnFor() { return {top: new Float64Array(this.width), most: 0, least: 0, reserved: 0, at: 0}; }
  begin(column, state) {
    column.top.set(state.bytes);
    column.most = column.least = state.total;
    column.reserved = state.reserved;
    column.at = state.t;
  }
  // Moves the state to instant `to`; `column` (or null) learns the extremes on the way. The state at its most is copied only
  // before something is freed: a rise has one copy, not one per event.
  walk(state, to, column) {
    const {lives, ends, segmentAt, segmentBytes} = this, {alloc} = lives, count = lives.count;
    let risen = false;
    for (;;) {
      const a = state.a < count ? alloc[state.a] : NEVER, b = state.b < ends.count ? ends.at[state.b] : NEVER;
      const s = state.s < segmentAt.length ? segmentAt[state.s] : NEVER, t = Math.min(a, b, s);
      if (t > to) break;
      if (b === t && risen) { column.top.set(state.bytes); risen = false; }
      while (state.b < ends.count && ends.at[state.b] === t) this.add(state, ends.order[state.b++], -1);
      while (state.a < count && alloc[state.a] === t) this.add(state, state.a++, 1);
      while (state.s < segmentAt.length && segmentAt[state.s] === t) state.reserved += segmentBytes[state.s++];
      if (!column) continue;
      if (state.total > column.most) { column.most = state.total; column.at = t; risen = true; }
      else if (state.total < column.least) column.least = state.total;
      if (state.reserved > column.reserved) column.reserved = state.reserved;
    }
    if (risen) column.top.set(state.bytes);
    state.t = to;
  }
  at(t) {
    const k = Math.floor(t / this.bucket), from = k * this.bucket, bytes = this.start.slice(k * this.width, (k + 1) * this.width);
    const state = {t: from, a: above(this.lives.alloc, from), b: above(this.ends.at, from), s: above(this.segmentAt, from), bytes,
      total: bytes.reduce((sum, x) => sum + x, 0), reserved: this.startReserved[k]};
    this.walk(state, t, null);
    return state;
  }
  // Column p covers the instants edges[p] ... edges[p + 1].
  columns(edges) {
    const count = edges.length - 1, {width, bucket} = this, column = this.columnFor();
    const out = {count, top: new Float64Array(count * width), most: new Float64Array(count), least: new Float64Array(count),
      reserved: new Float64Array(count)};
    let state = null;
    for (let p = 0; p < count; p++) {
      if (edges[p + 1] - edges[p] <= 4 * bucket) {
        if (!state || state.t !== edges[p]) state = this.at(edges[p]);
        this.begin(column, state);
        this.walk(state, edges[p + 1], column);
        out.top.set(column.top, p * width);
      } else this.gather(column, Math.floor(edges[p] / bucket), Math.floor(edges[p + 1] / bucket), out.top, p * width);
      out.most[p] = column.most; out.least[p] = column.least; out.reserved[p] = column.reserved;
    }
    return out;
  }
  gather(column, first, last, top, place) {
    let best = first, least = this.least[first], reserved = this.reserved[first];
    for (let k = first + 1; k <= last; k++) {
      if (this.most[k] > this.most[best]) best = k;
      if (this.least[k] < least) least = this.least[k];
      if (this.reserved[k] > reserved) reserved = this.reserved[k];
    }
    column.most = this.most[best]; column.least = least; column.reserved = reserved;
    for (let c = 0; c < this.width; c++) top[place + c] = this.top[best * this.width + c];
  }
}

// Address ranges that are reserved at an instant. Mapped ranges of one pool and stream join where they touch (expandable segments).
function segmentsAt(segments, t) {
  let list = segments.start.map(s => ({...s})).sort((a, b) => a.addr - b.addr);
  const place = addr => {
    let low = 0, high = list.length;
    while (low < high) { const middle = low + high >>> 1; if (list[middle].addr + list[middle].size > addr) high = middle; else low = middle + 1; }
    return low;
  };
  const give = s => {
    const i = place(s.addr), before = list[i - 1], after = list[i], touches = (x, y) => x && y && x.joins && y.joins && x.addr
      + x.size === y.addr && x.pool === y.pool && x.stream === y.stream;
    if (touches(before, s)) {
      before.size += s.size;
      if (touches(before, after)) { before.size += after.size; list.splice(i, 1); }
    } else if (touches(s, after)) { after.addr = s.addr; after.size += s.size; }
    else list.splice(i, 0, s);
  };
  const take = (addr, size) => {
    for (let i = place(addr); i < list.length && list[i].addr < addr + size;) {
      const s = list[i], from = Math.max(s.addr, addr), to = Math.min(s.addr + s.size, addr + size), rest = s.addr + s.size - to;
      if (rest > 0) list.splice(i + 1, 0, {...s, addr: to, size: rest});
      if (from > s.addr) { s.size = from - s.addr; i++; } else list.splice(i, 1);
    }
  };
  for (const e of segments.events) {
    if (e.t > t) break;
    if (e.action & 1) take(e.addr, e.size);
    else give({addr: e.addr, size: e.size, stream: e.stream, pool: e.pool, joins: e.action === 2});
  }
  return list;
}

class Model {
  constructor(data) {
    Object.assign(this, data);
    const {facts, lives} = this, few = fewCategories(facts.categories, lives);
    this.events = facts.events;
    this.hasTime = this.time[this.events] > 0;
    this.ends = orderEnds(lives, this.events);
    this.category = few.column;
    this.categories = few.list;
    this.levels = new Levels(lives, this.ends, this.segments.events, facts.startReserved, few.list.length, few.column, this.events);
    this.hasSegments = this.segments.start.length + this.segments.events.length > 0;
    this.order = this.stackOrder();
  }
  // Long-held categories at the bottom, where a flat band is easiest to read.
  stackOrder() {
    const {start, top, width, buckets} = this.levels, held = new Float64Array(width), most = new Float64Array(width);
    for (let k = 0; k < buckets; k++)
      for (let c = 0; c < width; c++) {
        held[c] += start[k * width + c];
        most[c] = Math.max(most[c], top[k * width + c], start[k * width + c]);
      }
    const score = c => most[c] ? held[c] / buckets / most[c] : 0;
    return [...held.keys()].sort((a, b) => score(b) - score(a));
  }
  liveAt(t) {
    const {alloc, end} = this.lives, until = above(alloc, t), list = new Int32Array(Math.max(until, 1));
    let count = 0;
    for (let i = 0; i < until; i++) if (end[i] > t) list[count++] = i;
    return list.subarray(0, count);
  }
  pending(life, t) { return this.lives.request[life] <= t; }
  label(stack) { return this.labels[stack]; }
  address(life) { return '0x' + (this.base + BigInt(this.lives.addr[life])).toString(16); }
  timeOf(t) { return this.time[Math.max(0, Math.min(t, this.events))]; }
}

function frameText(frame) {
  const file = frame.file.split(/[\\/]/).pop();
  return file ? `${frame.name}  ${file}${frame.line ? ':' + frame.line : ''}` : frame.name || '?';
}
