// Runs PyTorch's snapshot viewer on snapshots that Headroom writes, without a browser.
//
//   node tests/snapshots/check_viewer.mjs MemoryViz.js PROGRAM [SNAPSHOT...]
//
// MemoryViz.js is torch/utils/viz/MemoryViz.js of a PyTorch checkout (it is in no wheel: the page loads it from the network).
// PROGRAM is bench_snapshot_write, which makes random snapshots and rewrites the SNAPSHOTs as pickle and as JSON.
// The viewer's code is run as it is; d3 and the document are stand-ins that keep what is drawn. For each snapshot:
//   * its unpickler gives what JSON.parse gives for the same snapshot as JSON;
//   * its timeline draws the levels that the events say, in the categories' colours, with a legend of all of them;
//   * its segment view adds up to the same bytes allocated and reserved after every event.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

// ---- a document that keeps what is drawn ----

class Element {
  constructor(tag, parent, datum) {
    Object.assign(this, {tag, parent, datum, children: [], attributes: {}, content: '', value: '', selectedIndex: 0});
  }
  get options() { return this.children; }
  scrollIntoViewIfNeeded() {}
  all(tag) {
    const found = this.tag === tag ? [this] : [];
    for (const child of this.children) for (const e of child.all(tag)) found.push(e);
    return found;
  }
}

class Selection {
  constructor(elements, parent, rows) { Object.assign(this, {elements, parent, rows}); }
  append(tag) {
    const made = this.rows
      ? this.rows.map(row => new Element(tag, this.parent, row))
      : this.elements.map(e => new Element(tag, e, e.datum));
    for (const e of made) e.parent.children.push(e);
    return new Selection(made);
  }
  selectAll(tag) { return new Selection(this.elements.flatMap(e => e.children.filter(c => c.tag === tag)), this.elements[0]); }
  data(rows) { return new Selection(this.elements, this.parent, rows); }
  enter() { return this; }
  each(give) { this.elements.forEach((e, i) => give(e, i)); return this; }
  attr(name, value) { return this.each((e, i) => { e.attributes[name] = typeof value === 'function' ? value(e.datum, i) : value; }); }
  text(value) { return this.each((e, i) => { e.content = typeof value === 'function' ? value(e.datum, i) : value; }); }
  html(value) { return this.text(value); }
  on() { return this; }
  call(give) { give(this); return this; }
  remove() { return this.each(e => e.parent.children.splice(e.parent.children.indexOf(e), 1)); }
  node() { return this.elements[0]; }
  datum() { return this.elements[0].datum; }
}

function scaleLinear() {
  let [d0, d1, r0, r1] = [0, 1, 0, 1];
  const scale = x => r0 + (d1 === d0 ? 0 : (x - d0) / (d1 - d0)) * (r1 - r0);
  scale.domain = ([a, b]) => { [d0, d1] = [a, b]; return scale; };
  scale.range = ([a, b]) => { [r0, r1] = [a, b]; return scale; };
  scale.invert = y => d0 + ((y - r0) / (r1 - r0)) * (d1 - d0);
  return scale;
}

// Something that can be called, and whose every member is the same again.
const anything = new Proxy(function () {}, {get: (_, key) => (key === Symbol.toPrimitive ? () => '' : anything), apply: () => anything});

function loadViewer(path) {
  const source = readFileSync(path, 'utf8').replace(/^import .*$/gm, '').replace(/^export /gm, '');
  const roots = {head: new Element('head'), body: new Element('body')};
  const d3 = {select: what => new Selection([typeof what === 'string' ? roots[what] : what]), format: () => String};
  const window = {requestAnimationFrame: give => give()};
  const names = ['unpickle', 'annotate_snapshot', 'process_alloc_data', 'create_trace_view', 'create_segment_view', 'MemoryView', 'StackInfo'];
  const make = new Function('d3', 'axisLeft', 'scaleLinear', 'zoom', 'zoomIdentity', 'brushX', 'window', 'console', 'event',
    `${source}\nreturn {${names.join(', ')}, colors: schemeTableau10};`);
  return make(d3, anything, scaleLinear, anything, anything, anything, window, {log() {}}, anything);
}

// ---- what the events say ----

const isAlloc = e => e.action === 'alloc';
const isFree = e => e.action === 'free' || e.action === 'free_completed';

// Bytes allocated and reserved after each event of a device, going back from the last state, and those blocks that the
// viewer's timeline leaves out: pending ones whose allocation the trace has lost.
function levelsOf(snapshot, device) {
  const events = snapshot.device_traces[device], last = new Map();
  for (const e of events) if (isAlloc(e) || isFree(e)) last.set(e.addr, e.action);
  let allocated = 0, reserved = 0, lost = 0;
  for (const segment of snapshot.segments.filter(s => s.device === device)) {
    reserved += segment.total_size;
    for (const b of segment.blocks) {
      if (b.state !== 'inactive') allocated += b.requested_size;
      if (b.state === 'active_pending_free' && last.get(b.addr) !== 'alloc') lost += b.requested_size;
    }
  }
  const levels = [];
  for (let k = events.length - 1; k >= 0; k--) {
    const e = events[k];
    levels[k] = {allocated, reserved};
    if (isAlloc(e)) allocated -= e.size;
    if (isFree(e)) allocated += e.size;
    if (e.action === 'segment_alloc' || e.action === 'segment_map') reserved -= e.size;
    if (e.action === 'segment_free' || e.action === 'segment_unmap') reserved += e.size;
  }
  return {events, levels, lost};
}

// ---- the checks ----

function checkTimeline(viewer, snapshot, device) {
  const {events, levels, lost} = levelsOf(snapshot, device);
  const data = viewer.process_alloc_data(snapshot, device, false, 1e9);
  const drawn = events.flatMap((e, k) => (isAlloc(e) ? [levels[k].allocated] : isFree(e) ? [levels[k].allocated + e.size] : []));
  if (drawn.length === 0) return 0;
  const steps = list => list.filter((level, k) => level !== list[k - 1]);
  assert.deepEqual(steps(data.max_at_time), steps(drawn.map(level => level - lost)), 'the levels of the timeline');
  const page = new Element('div');
  viewer.create_trace_view(new Selection([page]), snapshot, device);
  const polygons = page.all('polygon').filter(p => p.datum), legend = page.all('text').map(t => t.content);
  for (const p of polygons) assert.ok(!p.attributes.points.includes('NaN') && p.attributes.fill, 'a polygon');
  assert.deepEqual(legend, snapshot.categories, 'the legend');
  for (const [index, category] of snapshot.categories.entries()) {
    const colored = polygons.filter(p => p.datum.elem !== 'summarized' && p.datum.color === index);
    const made = events.filter(e => isAlloc(e) && (e.category ?? 'unknown') === category);
    const freed = events.filter((e, k) => isFree(e) && e.category === category && !allocatedBefore(events, k));
    if (category === 'unknown') assert.ok(colored.length >= made.length); // and all from before the trace
    else assert.equal(colored.length, made.length + freed.length, category);
    for (const p of colored) assert.equal(p.attributes.fill, viewer.colors[index % viewer.colors.length], category);
  }
  viewer.create_trace_view(new Selection([new Element('div')]), snapshot, device, true);
  return polygons.length;
}

function allocatedBefore(events, index) {
  for (let k = index - 1; k >= 0; k--)
    if (events[k].addr === events[index].addr && (isAlloc(events[k]) || isFree(events[k]))) return isAlloc(events[k]);
  return false;
}

function checkSegments(viewer, snapshot, device) {
  const {events, levels} = levelsOf(snapshot, device);
  const page = new Selection([new Element('div')]);
  const memory = viewer.MemoryView(page, viewer.StackInfo(page), snapshot, device);
  for (let k = 0; k < events.length; k += 1 + Math.floor(events.length / 200))
    assert.deepEqual(memory.draw(k), [levels[k].reserved, levels[k].allocated], `the state after event ${k} of device ${device}`);
  viewer.create_segment_view(new Selection([new Element('div')]), snapshot, device);
}

function unpickleFile(viewer, path) {
  const bytes = readFileSync(path);
  return viewer.unpickle(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

function check(viewer, program, folder, path) {
  const json = join(folder, 'out.json'), pickle = join(folder, 'out.pickle');
  let polygons = 0;
  execFileSync(program, ['json', path, json]);
  const expected = JSON.parse(readFileSync(json, 'utf8'));
  for (const protocol of ['2', '3', '4']) {
    execFileSync(program, ['rewrite', path, pickle, protocol]);
    assert.deepEqual(unpickleFile(viewer, pickle), expected, `${path} in protocol ${protocol}`);
  }
  const snapshot = unpickleFile(viewer, pickle);
  viewer.annotate_snapshot(snapshot);
  for (const device of snapshot.device_traces.keys()) {
    polygons += checkTimeline(viewer, snapshot, device);
    checkSegments(viewer, snapshot, device);
  }
  return polygons;
}

const [viewerPath, program, ...given] = process.argv.slice(2);
assert.ok(viewerPath && program, 'usage: node check_viewer.mjs MemoryViz.js PROGRAM [SNAPSHOT...]');
const viewer = loadViewer(viewerPath), folder = mkdtempSync(join(tmpdir(), 'headroom-viewer-'));
try {
  const files = [...given];
  for (let seed = 0; seed < 24 && given.length === 0; seed++) {
    files.push(join(folder, `made-${seed}.pickle`));
    execFileSync(program, ['make', String(seed), seed === 23 ? '20000' : '500', files.at(-1)]);
  }
  const polygons = files.reduce((sum, path) => sum + check(viewer, program, folder, path), 0);
  console.log(`${files.length} snapshots: the viewer reads them and drew ${polygons} polygons in the categories' colours`);
} finally {
  rmSync(folder, {recursive: true});
}
