// Reads the data of the page, in the order in which src/report/columns.c wrote it: base64, gzip, then numbers of varying length.
//
// Instants: `t` events have happened; 0 is before the first event and `events` the end. An allocation is live at t when
// alloc <= t < freed, and pending (freed, but other streams may still use it) when freed <= t < end. Addresses are offsets
// from `base`.
const NEVER = 0x7fffffff;

function base64Bytes(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const value = new Uint8Array(128), digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  for (let i = 0; i < 64; i++) value[digits.charCodeAt(i)] = i;
  const length = text.length, out = new Uint8Array(length / 4 * 3 - (text[length - 1] === '=') - (text[length - 2] === '='));
  for (let i = 0, o = 0; i < length; i += 4) {
    const bits = value[text.charCodeAt(i)] << 18 | value[text.charCodeAt(i + 1)] << 12 | value[text.charCodeAt(i
      + 2)] << 6 | value[text.charCodeAt(i + 3)];
    out[o++] = bits >> 16; // writes past the end are dropped
    out[o++] = bits >> 8;
    out[o++] = bits;
  }
  return out;
}

async function gunzip(bytes) {
  const stream = new DecompressionStream('gzip'), writer = stream.writable.getWriter(), reader = stream.readable.getReader();
  const failed = writer.write(bytes).then(() => writer.close());
  // The last four bytes of gzip are the size of what is inside (RFC 1952).
  const out = new Uint8Array(new DataView(bytes.buffer, bytes.byteOffset + bytes.length - 4).getUint32(0, true));
  for (let at = 0;;) {
    const {done, value} = await reader.read();
    if (done) break;
    out.set(value, at);
    at += value.length;
  }
  await failed;
  return out;
}

class Numbers {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  u() {
    const bytes = this.bytes;
    let byte = bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127, unit = 128;
    do {
      byte = bytes[this.at++];
      value += (byte & 127) * unit;
      unit *= 128;
    } while (byte >= 128);
    return value;
  }
  i() {
    const value = this.u();
    if (value < 0x80000000) return value >>> 1 ^ -(value & 1);
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }
  text(count) {
    const text = new TextDecoder().decode(this.bytes.subarray(this.at, this.at + count));
    this.at += count;
    return text;
  }
  unsigned(array) { for (let i = 0; i < array.length; i++) array[i] = this.u(); return array; }
}

// Raw stream handles are many-digit numbers: the page numbers them by first use.
function readStreams(numbers, count) {
  const places = new Map([[0, 0]]), names = ['0'], column = new Uint16Array(count);
  let value = 0;
  for (let i = 0; i < count; i++) {
    value += numbers.i();
    let place = places.get(value);
    if (place === undefined) {
      place = Math.min(names.length, 65535);
      places.set(value, place);
      names[place] = '0x' + value.toString(16);
    }
    column[i] = place;
  }
  return {column, names};
}

function readLives(n, count, unit) {
  const alloc = new Int32Array(count), end = new Int32Array(count), request = new Int32Array(count);
  for (let i = 0, last = 0; i < count; i++) alloc[i] = last += n.u();
  for (let i = 0; i < count; i++) {
    const held = n.u();
    end[i] = held ? alloc[i] + held : NEVER;
  }
  for (let i = 0; i < count; i++) {
    const value = n.u();
    request[i] = value === 0 ? NEVER : end[i] === NEVER ? value - 1 : end[i] + 1 - value;
  }
  // A free that was requested before the trace leaves nothing live in it: freed is 0 then.
  const freed = Int32Array.from(end, (at, i) => Math.min(at, request[i]));
  const addr = new Float64Array(count), block = new Float64Array(count), seen = new Uint8Array(count);
  for (let i = 0, last = 0; i < count; i++) addr[i] = (last += n.i()) * unit;
  const size = n.unsigned(new Float64Array(count));
  for (let i = 0; i < count; i++) {
    const value = n.u();
    seen[i] = value % 2;
    block[i] = size[i] + (value - seen[i]) / 2;
  }
  const stack = n.unsigned(new Uint32Array(count)), category = n.unsigned(new Uint16Array(count)), pool = n.unsigned(new Uint32Array(count));
  return {count, alloc, freed, end, addr, size, block, seen, stack, category, pool, streams: readStreams(n, count)};
}

function readSegments(n, unit) {
  const start = [], events = [];
  for (let i = n.u(); i > 0; i--) {
    const addr = n.u() * unit;
    const segment = {addr, size: n.u(), stream: n.u(), pool: n.u()}, kind = n.u();
    start.push({...segment, joins: kind % 2 === 1, large: kind > 1});
  }
  for (let i = n.u(), t = 1; i > 0; i--) {
    t += n.u();
    const action = n.u(), addr = n.u() * unit;
    events.push({t, action, addr, size: n.u(), stream: n.u(), pool: n.u()}); // actions: 0 alloc, 1 free, 2 map, 3 unmap
  }
  return {start, events};
}

function readAnnotations(n) {
  const list = [];
  for (let i = n.u(), us = 0; i > 0; i--) {
    us += n.i();
    list.push({us, name: n.u(), end: n.u() === 1});
  }
  return list;
}

// Runs of one stage, as {from (instant), stage}.
function readStages(n) {
  const runs = [];
  for (let i = n.u(), from = 1; i > 0; i--) {
    from += n.u();
    runs.push({from, stage: n.u()});
  }
  return runs;
}

function readStacks(n) {
  const stacks = [], labels = [], frames = [], strings = [];
  for (let i = n.u(); i > 0; i--) {
    stacks.push(n.unsigned(new Uint32Array(n.u())));
    labels.push(n.text(n.u()));
  }
  for (let i = n.u(); i > 0; i--) frames.push({name: n.u(), file: n.u(), line: n.u()});
  for (let i = n.u(); i > 0; i--) strings.push(n.text(n.u()));
  for (const frame of frames) {
    frame.name = strings[frame.name];
    frame.file = strings[frame.file];
  }
  return {stacks, labels, frames, strings};
}

async function readData(text) {
  const n = new Numbers(await gunzip(base64Bytes(text)));
  const facts = JSON.parse(n.text(n.u()));
  const base = BigInt(n.u()) << 32n | BigInt(n.u()), unit = 2 ** n.u(), firstTime = n.i();
  const time = new Float64Array(facts.events + 1); // of instants, microseconds since the first event
  for (let t = 1; t <= facts.events; t++) time[t] = time[t - 1] + n.u();
  const lives = readLives(n, facts.lives, unit);
  return {facts, base, firstTime, time, lives, segments: readSegments(n, unit), annotations: readAnnotations(n), stages: readStages(n),
    ...readStacks(n)};
}
