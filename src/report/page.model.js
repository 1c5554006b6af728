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

// Lives that are freed within the trace, by when (a counting sort).
function orderFrees({count: lives, freed}, events) {
  const first = new Int32Array(events + 2), within = i => freed[i] > 0 && freed[i] <= events;
  let count = 0;
  for (let i = 0; i < lives; i++) if (within(i)) { first[freed[i]]++; count++; }
  for (let t = 0, sum = 0; t <= events; t++) { const here = first[t]; first[t] = sum; sum += here; }
  const order = new Int32Array(count), at = new Int32Array(count);
  for (let i = 0; i < lives; i++) {
    if (!within(i)) continue;
    const place = first[freed[i]]++;
    order[place] = i;
    at[place] = freed[i];
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
    for (; state.a < lives.count && lives.alloc[state.a] === 0; state.a++) if (lives.freed[state.a]) this.add(state, state.a, 1);
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
function segmentsAt({segments, facts}, t) {
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
      before.large &&= s.large;
      if (touches(before, after)) { before.size += after.size; before.large &&= after.large; list.splice(i, 1); }
    } else if (touches(s, after)) { after.addr = s.addr; after.size += s.size; after.large &&= s.large; }
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
    else {
      const joins = e.action === 2, large = joins ? e.size % facts.largeSegment === 0 : e.size !== 2 * MIB;
      give({addr: e.addr, size: e.size, stream: e.stream, pool: e.pool, joins, large});
    }
  }
  return list;
}

// ---- The allocator's state at an instant, by the rules of src/inspect/state.c and memory.c ----
const MIB = 2 ** 20;

// What is live or pending by address, without what overlaps the one before it.
function laidOut({lives}, t) {
  const {alloc, end, addr, size} = lives, list = [], until = above(alloc, t);
  for (let i = 0; i < until; i++) if (end[i] > t) list.push(i);
  list.sort((a, b) => addr[a] - addr[b] || a - b);
  let reach = -1;
  return list.filter(i => {
    if (addr[i] < reach) return false;
    reach = addr[i] + Math.max(size[i], 1);
    return true;
  });
}

// Segments, with one of its own for each of `list` that lies in none, up to the next segment or member at most.
function housed({lives}, segments, list) {
  const all = [];
  let s = 0;
  list.forEach((i, k) => {
    const addr = lives.addr[i], block = lives.block[i];
    while (s < segments.length && segments[s].addr + segments[s].size <= addr) all.push(segments[s++]);
    if (s < segments.length && segments[s].addr <= addr) return;
    const last = all[all.length - 1];
    if (last && last.addr + last.size > addr) return;
    const end = Math.min(addr + block, lives.addr[list[k + 1]] ?? Infinity, segments[s]?.addr ?? Infinity);
    all.push({addr, size: end - addr, stream: 0, pool: lives.pool[i], joins: false, large: block > MIB});
  });
  return all.concat(segments.slice(s));
}

// What the block of life `i` takes of `room`, up to what lies next: small remainders of large segments are not split off.
function blockBytes({lives, facts}, segment, i, room) {
  const own = lives.block[i];
  if (own >= room) return room;
  if (lives.seen[i] || !segment.large || segment.joins) return own;
  return room - own <= MIB || facts.maxSplit >= 0 && own >= facts.maxSplit ? room : own;
}

// Free bytes that empty_cache would give back: all where nothing is live, of expandable segments the chunks that lie free.
function returnableOf({facts}, segment, gaps) {
  if (!segment.blocks.length) return segment.size;
  const chunk = segment.large ? facts.largeSegment : 2 * MIB;
  return !segment.joins ? 0 : gaps.reduce((sum, [from, to]) =>
    sum + Math.max(0, Math.floor((to - segment.addr) / chunk) - Math.ceil((from - segment.addr) / chunk)) * chunk, 0);
}

// Segments with their blocks (lives and the bytes they take), and the sums: `parts` in the order of facts.parts.
function stateAt(model, t) {
  const {lives} = model, list = laidOut(model, t), parts = [0, 0, 0, 0, 0], sums = {reserved: 0, pools: 0, poolsFree: 0, parts};
  if (!model.facts.hasState) {
    for (const i of list) if (lives.freed[i] > t) parts[0] += lives.size[i];
    return {segments: [], sums: {...sums, reserved: parts[0]}};
  }
  const segments = housed(model, segmentsAt(model, t), list);
  let next = 0;
  for (const segment of segments) {
    const end = segment.addr + segment.size, gaps = [];
    let at = segment.addr;
    Object.assign(segment, {blocks: [], sizes: [], live: 0, pending: 0, rounding: 0});
    for (; next < list.length && lives.addr[list[next]] < end; next++) {
      const i = list[next], addr = lives.addr[i], limit = Math.min(lives.addr[list[next + 1]] ?? end, end);
      const size = blockBytes(model, segment, i, limit - addr), asked = Math.min(lives.size[i], size);
      if (addr > at) gaps.push([at, addr]);
      at = addr + size;
      if (!size) continue;
      segment.blocks.push(i);
      segment.sizes.push(size);
      if (lives.freed[i] <= t) segment.pending += size;
      else { segment.live += asked; segment.rounding += size - asked; }
    }
    if (end > at) gaps.push([at, end]);
    segment.free = segment.size - segment.live - segment.rounding - segment.pending;
    segment.returnable = returnableOf(model, segment, gaps);
    [segment.live, segment.rounding, segment.pending, segment.free - segment.returnable, segment.returnable]
      .forEach((bytes, k) => { parts[k] += bytes; });
    sums.reserved += segment.size;
    if (segment.pool) { sums.pools += segment.size; sums.poolsFree += segment.free; }
  }
  return {segments, sums};
}

class Model {
  constructor(data) {
    Object.assign(this, data);
    const {facts, lives} = this, few = fewCategories(facts.categories, lives);
    this.events = facts.events;
    this.hasTime = this.time[this.events] > 0;
    this.ends = orderFrees(lives, this.events);
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
    const {alloc, freed} = this.lives, until = above(alloc, t), list = new Int32Array(Math.max(until, 1));
    let count = 0;
    for (let i = 0; i < until; i++) if (freed[i] > t) list[count++] = i;
    return list.subarray(0, count);
  }
  pending(life, t) { return this.lives.freed[life] <= t; }
  label(stack) { return this.stacks[stack].length ? this.labels[stack] : this.facts.noStack; }
  // What tells rows "by stack" apart: without a stack, the category (as src/inspect/groups.c has it).
  stackKey(life) {
    const stack = this.lives.stack[life];
    return this.stacks[stack].length ? stack : -1 - this.lives.category[life];
  }
  categoryName(life) { return this.facts.categories[this.lives.category[life]] ?? 'unknown'; }
  address(life) { return '0x' + (this.base + BigInt(this.lives.addr[life])).toString(16); }
  timeOf(t) { return this.time[Math.max(0, Math.min(t, this.events))]; }
}

// A C++ name without its arguments, templates and the type it returns; the last two parts of a long one. Mangled names that
// have no templates are spelled out. The whole name stands wherever there is room for it (tips, titles, lists of frames).
function shortName(name) {
  const mangled = /^_Z(NK?)?(\d\w*)/.exec(name);
  if (mangled) return sourceNames(mangled[2], !!mangled[1]).join('::') || name;
  if (!name.includes('::')) return name;
  let depth = 0, plain = '';
  for (const c of name.replace(/\(anonymous namespace\)::/g, '').replace('operator()', 'operator\u0001')) {
    if (c === '(' && depth === 0) break;
    if (c === '<') depth++;
    else if (c === '>') depth = Math.max(0, depth - 1);
    else if (depth === 0) plain += c;
  }
  plain = plain.replace('\u0001', '()').trim().split(' ').pop() || name;
  const parts = plain.split('::');
  return plain.length > 48 && parts.length > 2 ? '…::' + parts.slice(-2).join('::') : plain;
}
// "2at6native3addE..." to its parts; of a name that is in no namespace the first.
function sourceNames(text, nested) {
  const names = [];
  for (let length; (length = parseInt(text, 10)) > 0;) {
    const from = String(length).length;
    if (from + length > text.length) return [];
    names.push(text.slice(from, from + length));
    text = text.slice(from + length);
    if (!nested) return names;
  }
  return text.startsWith('E') ? names : [];
}

function frameText(frame) {
  const file = frame.file.split(/[\\/]/).pop(), name = shortName(frame.name);
  // Of a library the number is no line, and its name says little beside that of the function.
  return file && file !== '??' && !/\.so[\d.]*$/.test(file) ? `${name}  ${file}${frame.line ? ':' + frame.line : ''}` : name || '?';
}
const wholeFrame = ({name, file, line}) => `${name}  ${file}${line ? ':' + line : ''}`;
