// Checks the HTML report: its data model against brute force (in Node), and the page in a headless Chromium.
//
//   node tests/report/check.mjs MAKER [--pictures DIR] [--events N]
//
// MAKER is build/*/bench_report, which writes a report of a made-up trace. Pictures go to DIR (light, dark, narrow).
import {execFileSync} from 'node:child_process';
import {mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {Browser, findBrowser} from './browser.mjs';

const here = dirname(fileURLToPath(import.meta.url)), option = (name, otherwise) => { const at = process.argv.indexOf(name); return at < 0 ? otherwise : process.argv[at + 1]; };
const maker = process.argv[2], pictures = option('--pictures', null), events = +option('--events', 1000000), work = mkdtempSync(join(tmpdir(), 'headroom-report-'));
let failed = 0, done = 0;

function check(name, holds, found = '') {
  done++;
  if (holds) return;
  failed++;
  console.log(`FAILED ${name}${found === '' ? '' : `: ${found}`}`);
}
function make(count, kind) {
  const path = join(work, `${kind}-${count}.html`);
  console.log(execFileSync(maker, [String(count), path, kind], {encoding: 'utf8'}).trim());
  return path;
}

// ---- The data and the model, against sums over all allocations ----
async function modelOf(path) {
  const source = ['data', 'model'].map(part => readFileSync(join(here, '../../src/report', `page.${part}.js`), 'utf8')).join('\n');
  const {readData, Model, segmentsAt, stateAt} = new Function(`${source}\nreturn {readData, Model, segmentsAt, stateAt};`)();
  return {model: new Model(await readData(readFileSync(path, 'utf8').match(/id="data">([^<]*)</)[1])), segmentsAt, stateAt};
}
function bytesAt(model, t) {
  const bytes = new Float64Array(model.categories.length);
  for (let i = 0; i < model.lives.count; i++) if (model.lives.alloc[i] <= t && t < model.lives.freed[i]) bytes[model.category[i]] += model.lives.size[i];
  return bytes;
}
const sum = values => values.reduce((a, b) => a + b, 0), close = (a, b) => Math.abs(a - b) < 0.5;

async function checkModel(path) {
  const {model, segmentsAt, stateAt} = await modelOf(path), {levels, events: last} = model;
  let random = 12345, peak = 0;
  const below = n => (random = (random * 1103515245 + 12345) % 2147483648) % n;
  for (let k = 0; k < 60; k++) {
    const t = k === 0 ? 0 : k === 1 ? last : below(last + 1), truth = bytesAt(model, t), state = levels.at(t), reserved = sum(segmentsAt(model, t).map(s => s.size));
    check(`bytes by category at ${t}`, truth.every((bytes, c) => close(bytes, state.bytes[c])), `${truth} against ${state.bytes}`);
    check(`live set at ${t}`, close(sum(Array.from(model.liveAt(t), i => model.lives.size[i])), sum(truth)));
    check(`reserved at ${t}`, close(reserved, state.reserved), `${reserved} against ${state.reserved}`);
  }
  for (const t of [0, below(last), model.facts.peakEvent + 1, last]) {
    const {addr} = model.lives, {segments, sums} = stateAt(model, t), blocks = segments.flatMap(s => s.blocks.map((i, b) => ({i, s, size: s.sizes[b]})));
    check(`blocks at ${t} lie in segments`, blocks.every(({i, s, size}) => addr[i] >= s.addr && addr[i] + size <= s.addr + s.size));
    check(`blocks at ${t} are apart`, blocks.every(({i}, k) => k === 0 || addr[blocks[k - 1].i] + blocks[k - 1].size <= addr[i]));
    check(`parts at ${t} add up`, close(sum(sums.parts), sums.reserved) && close(sums.parts[0], sum(Array.from(model.liveAt(t), i => model.lives.size[i]))), `${sums.parts} of ${sums.reserved}`);
  }
  for (let t = 0; t <= last; t += 1 + Math.floor(last / 4000)) peak = Math.max(peak, levels.at(t).total);
  check('peak', levels.total.most >= peak && close(levels.total.most, model.facts.peakLive), `${levels.total.most} against ${model.facts.peakLive}`);
  check('peak instant', levels.total.at === model.facts.peakEvent + 1, `${levels.total.at} against ${model.facts.peakEvent + 1}`);
  for (const width of [7, 50, 400]) checkColumns(model, width, below(last / 2), last - below(last / 4));
  checkColumns(model, 30, 100, 160);
}
// A column's extremes are those of its instants.
function checkColumns(model, count, from, to) {
  const edges = Int32Array.from({length: count + 1}, (_, p) => Math.floor(from + p / count * (to - from))), columns = model.levels.columns(edges), {width, bucket} = model.levels;
  for (let p = 0; p < count; p += Math.ceil(count / 8)) {
    // Wide columns are made of whole buckets: they may reach into those that they begin and end in.
    const wide = edges[p + 1] - edges[p] > 4 * bucket, first = wide ? Math.floor(edges[p] / bucket) * bucket : edges[p], last = wide ? Math.min(model.events, (Math.floor(edges[p + 1] / bucket) + 1) * bucket - 1) : edges[p + 1];
    let most = -1, least = Infinity, reserved = 0;
    for (const state = model.levels.at(first); ;) {
      most = Math.max(most, state.total);
      least = Math.min(least, state.total);
      reserved = Math.max(reserved, state.reserved);
      if (state.t >= last) break;
      model.levels.walk(state, state.t + 1, null);
    }
    check(`column ${p} of ${count}`, close(columns.most[p], most) && close(columns.least[p], least) && close(columns.reserved[p], reserved), `${columns.most[p]} ${columns.least[p]} against ${most} ${least}`);
    check(`stack of column ${p} of ${count}`, close(sum(columns.top.subarray(p * width, (p + 1) * width)), most));
  }
}

// Ranges given and taken at random, against a list of single units.
async function checkSegments(path) {
  const {segmentsAt} = await modelOf(path);
  let random = 99;
  const below = n => (random = (random * 1103515245 + 12345) % 2147483648) % n;
  for (let round = 0; round < 300; round++) {
    const units = new Int8Array(40), events = [];
    for (let t = 1; t <= 30; t++) {
      const addr = below(40), size = 1 + below(Math.min(8, 40 - addr)), part = units.subarray(addr, addr + size), take = below(3) === 0;
      if (!take && part.some(x => x)) continue;
      part.fill(take ? 0 : 1);
      events.push({t, action: take ? 3 : 2, addr, size, stream: 0, pool: 0});
    }
    const list = segmentsAt({segments: {start: [], events}, facts: {}}, 30), seen = new Int8Array(40);
    for (const s of list) seen.fill(1, s.addr, s.addr + s.size);
    const apart = list.every((s, i) => i === 0 || list[i - 1].addr + list[i - 1].size < s.addr);
    check(`ranges of round ${round}`, seen.join() === units.join() && apart, `${seen.join('')} against ${units.join('')}`);
  }
}

function checkCsv() {
  const source = ['draw', 'table'].map(part => readFileSync(join(here, '../../src/report', `page.${part}.js`), 'utf8')).join('\n');
  const csvCell = new Function(`${source}\nreturn csvCell;`)();
  const cells = [['plain', 'plain'], [12, '12'], ['=1+1', "'=1+1"], ['@x', "'@x"], ['-1', "'-1"], ['a,"b"', '"a,""b"""'], ['two\nlines', '"two\nlines"']];
  for (const [value, cell] of cells) check(`CSV of ${JSON.stringify(value)}`, csvCell(value) === cell, csvCell(value));
}

// ---- The page ----
const measures = `performance.getEntriesByType('measure')`, median = list => list.slice().sort((a, b) => a - b)[list.length >> 1];
const text = (browser, selector) => browser.evaluate(`document.querySelector(${JSON.stringify(selector)}).textContent`);
async function boxOf(browser, id) {
  const [x, y, width, height] = await browser.evaluate(`(() => { const c = document.getElementById('${id}'); c.scrollIntoView({block: 'center', behavior: 'instant'}); const b = c.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()`);
  return {x, y, width, height};
}
const settle = () => new Promise(resolve => setTimeout(resolve, 150));

async function checkUse(browser, path) {
  await browser.open(path);
  check('opens without complaint', browser.complaints().length === 0, browser.complaints().join('; '));
  check('title', (await browser.evaluate('document.title')).startsWith('A training run'));
  const box = await boxOf(browser, 'timeline-c'), before = await text(browser, '#instant-text');
  await browser.click(box.x + box.width / 2, box.y + box.height / 2);
  await settle();
  const after = await text(browser, '#instant-text');
  check('a click chooses an instant', before !== after, after);
  const event = () => text(browser, '#instant-text').then(words => +(words.match(/After event ([0-9,]+)/)?.[1] ?? '0').replace(/,/g, ''));
  const at = await event();
  await browser.evaluate(`document.getElementById('timeline-c').focus()`);
  await browser.key('ArrowRight');
  await settle();
  check('an arrow key goes to the next event', await event() === at + 1, await event());
  check('the slider tells it', await browser.evaluate(`document.getElementById('timeline-c').getAttribute('aria-valuenow')`) === String(at + 1));
  await browser.key('p');
  await settle();
  const live = (await text(browser, '#instant-text')).match(/: ([0-9.]+ [KMG]iB) live/)[1];
  check('p goes to the peak', live === await text(browser, '.facts dd').then(words => words.match(/[0-9.]+ [KMG]iB/)[0]), live);
  check('the table adds up', (await text(browser, '#table-body [role=status]')).endsWith(`${live} together`), await text(browser, '#table-body [role=status]'));
  for (const by of ['largest', 'category', 'size', 'stack']) {
    await browser.evaluate(`document.querySelector('#live-by [value=${by}]').click()`);
    check(`live by ${by}`, await browser.evaluate(`document.querySelectorAll('#live-table tbody tr').length`) > 0);
  }
  await browser.evaluate(`(() => { const q = document.getElementById('table-q'); q.value = 'optimizer layers.3'; q.dispatchEvent(new Event('input')); })()`);
  await new Promise(resolve => setTimeout(resolve, 400));
  const rows = await browser.evaluate(`[...document.querySelectorAll('#table-body tbody td.wide')].map(td => td.textContent)`);
  check('search', rows.length > 0 && rows.every(row => /optimizer\.layers\.3/.test(row)), rows[0]);
  await checkZoomAndTheme(browser);
  await browser.evaluate(`for (const d of document.querySelectorAll('details[id]')) d.open = true`);
  await settle();
  for (const id of ['timeline-t', 'flame-t', 'map-t', 'spans-t']) check(`data table ${id}`, await browser.evaluate(`document.querySelectorAll('#${id} tbody tr').length`) > 0);
  for (const id of ['flame-c', 'map-c', 'spans-c']) {
    await browser.evaluate(`document.getElementById('${id}').focus()`);
    await browser.key('ArrowDown');
    await settle();
    check(`keys in ${id}`, (await text(browser, `#${id.replace('-c', '-d')}`)).length > 10);
  }
  await browser.evaluate(`document.activeElement.blur()`);
  await browser.key('?');
  check('help opens', await browser.evaluate(`document.getElementById('keys').open`));
  await browser.key('Escape');
  check('no complaint after use', browser.complaints().length === 0, browser.complaints().join('; '));
}

async function checkZoomAndTheme(browser) {
  const rows = () => browser.evaluate(`(() => { const d = document.getElementById('timeline-t'); d.open = true; return d.querySelector('tbody tr td')?.textContent; })()`);
  await rows();
  await settle();
  const whole = await rows();
  const {x, y, width, height} = await boxOf(browser, 'timeline-c');
  await browser.mouse('mousePressed', x + width * 0.4, y + height / 2, {button: 'left', buttons: 1, clickCount: 1});
  await browser.mouse('mouseMoved', x + width * 0.5, y + height / 2, {button: 'left', buttons: 1});
  await browser.mouse('mouseReleased', x + width * 0.6, y + height / 2, {button: 'left', clickCount: 1});
  await settle();
  const zoomed = await rows();
  check('dragging zooms', zoomed !== whole && !zoomed.startsWith('0 '), zoomed);
  await browser.evaluate(`document.getElementById('zoom-all').click()`);
  await settle();
  check('All shows all', await rows() === whole, await rows());
  const colour = () => browser.evaluate(`getComputedStyle(document.body).backgroundColor`), light = await colour();
  await browser.evaluate(`document.getElementById('theme').click(); document.getElementById('theme').click()`);
  check('the button makes it dark', await colour() !== light && await text(browser, '#theme') === 'Theme: dark');
  await browser.evaluate(`document.getElementById('theme').click()`);
  check('and back', await colour() === light);
  const address = await browser.evaluate(`(() => { const q = document.getElementById('table-q'); q.value = ''; q.dispatchEvent(new Event('input')); return null; })()`).then(() => new Promise(r => setTimeout(r, 400)))
    .then(() => browser.evaluate(`document.querySelector('#table-body tbody td:nth-child(6)').textContent`));
  await browser.evaluate(`(() => { const q = document.getElementById('table-q'); q.value = '${address}'; q.dispatchEvent(new Event('input')); })()`);
  await new Promise(resolve => setTimeout(resolve, 400));
  check('search by address', await browser.evaluate(`[...document.querySelectorAll('#table-body tbody tr')].map(r => r.cells[5].textContent).join()`) === address);
}

async function checkSpeed(browser, path) {
  const opened = [];
  for (let i = 0; i < 3; i++) {
    await browser.open(path);
    opened.push(await browser.evaluate(`Object.fromEntries(performance.getEntriesByType('mark').map(m => [m.name.slice(7), m.startTime]))`));
  }
  const {start, painted, read} = opened.sort((a, b) => a.painted - b.painted)[1];
  const box = await boxOf(browser, 'timeline-c');
  await browser.evaluate(`performance.clearMeasures()`);
  for (let i = 0; i < 9; i++) { await browser.click(box.x + 100 + i * (box.width - 150) / 9, box.y + box.height - 60); await settle(); }
  const instants = await browser.evaluate(`${measures}.filter(m => m.name === 'report:instant').map(m => m.duration)`);
  await browser.evaluate(`performance.clearMeasures()`);
  for (let i = 0; i < 30; i++) await browser.mouse('mouseWheel', box.x + box.width / 3, box.y + 150, {deltaX: 0, deltaY: i < 20 ? -60 : 60});
  await settle();
  const frames = await browser.evaluate(`${measures}.filter(m => m.name === 'report:frame').map(m => m.duration)`);
  console.log(`opened and painted (median of 3) after ${painted.toFixed(0)} ms (parsed ${start.toFixed(0)}, unpacked ${read.toFixed(0)}); live set at an instant: median ${median(instants).toFixed(1)} ms, most ${Math.max(...instants).toFixed(1)}; a frame of zooming: median ${median(frames).toFixed(1)} ms, most ${Math.max(...frames).toFixed(1)}`);
  check('opens within 2 s', painted < 2000, painted);
  check('live set within 150 ms', Math.max(...instants) < 150, Math.max(...instants));
  check('zooming draws within 16 ms', median(frames) < 16, median(frames));
}

async function checkHostile(browser, path) {
  await browser.open(path);
  await browser.evaluate(`for (const d of document.querySelectorAll('details')) d.open = true`);
  await settle();
  check('hostile names stay text', await browser.evaluate(`document.images.length + document.scripts.length + document.querySelectorAll('iframe, object, embed, link, base').length`) === 1);
  check('nothing ran', !(await browser.evaluate('document.title')).startsWith('owned') && await browser.evaluate('window.owned === undefined'));
  check('the names are shown', (await browser.evaluate(`document.getElementById('live-table').textContent`)).includes('<img src=x'));
  check('hostile report opens without complaint', browser.complaints().length === 0, browser.complaints().join('; '));
  // What the policy must stop even if a name did become markup.
  await browser.evaluate(`document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.owned = 1'}))`);
  check('the policy stops scripts', await browser.evaluate('window.owned === undefined'));
  check('the policy stops connections', await browser.evaluate(`fetch('https://example.invalid/').then(() => false, error => /Failed to fetch|Content Security/.test(error.message))`));
}

// Pages of recorded snapshots, as the program beside the maker writes them: of one, and of two.
function recorded(name, ...snapshots) {
  const path = join(work, `${name}.html`), real = join(here, '../snapshots/real/2.15');
  execFileSync(join(dirname(maker), 'headroom'), ['inspect', ...snapshots.map(s => join(real, `${s}.pickle.gz`)), '--html', path]);
  return path;
}
// Nothing is wider than the window, no figure and no name in a narrow column is broken over lines.
async function checkWidths(browser, path) {
  for (const width of [400, 800, 1280]) for (const dark of [false, true]) {
    await browser.size(width, 900, dark);
    await browser.open(path);
    await settle();
    const here = `at ${width}${dark ? ', dark' : ''}`;
    check(`${here}: opens without complaint`, browser.complaints().length === 0, browser.complaints().join('; '));
    check(`${here}: nothing is wider than the window`, await browser.evaluate('document.documentElement.scrollWidth') <= width);
    const broken = await browser.evaluate(`[...document.querySelectorAll('td.number, td.plain, td.spare')].filter(td => {
      const range = document.createRange();
      range.selectNodeContents(td);
      return td.offsetParent && range.getBoundingClientRect().height > 32;
    }).map(td => td.textContent)`);
    check(`${here}: no cell is broken`, broken.length === 0, broken.slice(0, 3).join('; '));
  }
  await browser.size(1440, 900);
}

async function checkRecorded(browser) {
  const one = recorded('one', 'backward-oom'), two = recorded('two', 'gpt2-varied', 'backward-oom');
  await checkWidths(browser, one);
  await browser.open(one);
  check('the fix stands on the page', /PYTORCH_ALLOC_CONF=expandable_segments:True/.test(await text(browser, '.notes ol')));
  check('with its arithmetic', /31.64 MiB left of 330.00 MiB/.test(await text(browser, '.notes ul')));
  check('the bar has all of the room', /with 20.00 MiB free on the device 330.00 MiB/.test(await text(browser, '#sums')));
  await browser.open(two);
  check('two opens without complaint', browser.complaints().length === 0, browser.complaints().join('; '));
  check('what it is compared with', await text(browser, '#against-h') === 'Compared with gpt2-varied.pickle.gz', await text(browser, '#against-h'));
  check('the difference', /live at the instant147.01 MiB271.36 MiB\+124.35 MiB/.test(await text(browser, '#against-body')), await text(browser, '#against-body'));
  await checkWidths(browser, two);
  return two;
}

async function takePictures(browser, path) {
  mkdirSync(pictures, {recursive: true});
  for (const [name, width, dark] of [['light', 1440, false], ['dark', 1440, true], ['narrow', 360, false]]) {
    await browser.size(width, 900, dark);
    await browser.open(path);
    await browser.size(width, Math.min(7000, await browser.evaluate('document.documentElement.scrollHeight')), dark);
    await settle();
    await browser.screenshot(join(pictures, `${name}.png`), false);
  }
}

async function checkDamaged(browser, path) {
  const damaged = join(work, 'damaged.html');
  writeFileSync(damaged, readFileSync(path, 'utf8').replace(/(id="data">.{2000}).{64}/, '$1' + 'A'.repeat(64)));
  await browser.open(damaged);
  check('damaged data is told', /cannot be read/.test(await text(browser, '#loading')), await text(browser, '#loading'));
}

async function main() {
  const small = make(30000, 'plain'), lost = make(30000, 'lost'), hostile = make(3000, 'hostile'), large = make(events, 'plain');
  await checkModel(small);
  await checkModel(lost);
  await checkSegments(lost);
  checkCsv();
  if (!findBrowser()) console.log('no Chromium: the page itself was not checked');
  else {
    const browser = await Browser.start();
    try {
      await browser.size(1440, 900);
      await checkUse(browser, small);
      await checkSpeed(browser, large);
      await browser.open(lost);
      check('a trace without its beginning', browser.complaints().length === 0 && /does not begin/.test(await text(browser, '#facts')));
      await checkHostile(browser, hostile);
      await checkDamaged(browser, small);
      await checkRecorded(browser);
      if (pictures) await takePictures(browser, small);
    } finally { await browser.stop(); }
  }
  console.log(`${done - failed} of ${done} checks passed`);
}

await main().finally(() => rmSync(work, {recursive: true, force: true}));
process.exit(failed ? 1 : 0);
