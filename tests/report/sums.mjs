// The page's arithmetic against the program's: node sums.mjs HEADROOM WORK SNAPSHOT...
//
// For each snapshot and some instants, what the page's script sums up (parts of the reserved bytes, private pools, live bytes
// by category and by stack) must be what `headroom inspect --at N --json` says; and sizes must be printed alike.
import {execFileSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import {basename, dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';

const [program, work, ...snapshots] = process.argv.slice(2), sources = join(dirname(fileURLToPath(import.meta.url)), '../../src/report');
const source = ['data', 'draw', 'model'].map(part => readFileSync(join(sources, `page.${part}.js`), 'utf8')).join('\n');
const {readData, Model, stateAt, sizeText, shortName} =
  new Function(`${source}\nreturn {readData, Model, stateAt, sizeText, shortName};`)();
const PARTS = ['requested_bytes', 'rounding_bytes', 'pending_bytes', 'free_pinned_bytes', 'free_returnable_bytes'], INSTANTS = 7;
let failed = 0, done = 0;

function same(what, found, wanted) {
  done++;
  if (JSON.stringify(found) === JSON.stringify(wanted)) return;
  failed++;
  console.log(`${what}: the page ${JSON.stringify(found)}, inspect ${JSON.stringify(wanted)}`);
}
const run = (...options) => execFileSync(program, options, {encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'inherit']});

function bytesBy(model, live, key) {
  const bytes = {};
  for (const i of live) bytes[key(i)] = (bytes[key(i)] ?? 0) + model.lives.size[i];
  return bytes;
}
const ordered = bytes => Object.values(bytes).sort((a, b) => b - a);

function compare(name, model, t, snapshot) {
  const inspected = JSON.parse(run('inspect', snapshot, '--at', String(t), '--json', '--top', '1000000')), {at} = inspected;
  const {sums} = stateAt(model, t), live = model.liveAt(t), here = `${name} after ${t}`;
  same(`${here}: parts`, sums.parts, PARTS.map(part => at[part]));
  same(`${here}: reserved`, sums.reserved, at.reserved_bytes);
  same(`${here}: level`, model.hasSegments ? model.levels.at(t).reserved : at.reserved_bytes, at.reserved_bytes);
  same(`${here}: private pools`, [sums.pools, sums.poolsFree], [at.private_pool_bytes, at.private_pool_free_bytes]);
  same(`${here}: live`, model.levels.at(t).total, at.requested_bytes);
  // Categories that the page infers are those of the inspection it was made from: of the default instant.
  const byCategory = Object.fromEntries(inspected.by_category.map(row => [row.category, row.bytes]));
  same(`${here}: categories`, Object.entries(bytesBy(model, live, i => model.categoryName(i))).sort(), Object.entries(byCategory).sort());
  same(`${here}: stacks`, ordered(bytesBy(model, live, i => model.stackKey(i))), inspected.by_stack.map(row => row.bytes));
  if (at.requested_bytes && model.facts.hasState) same(`${here}: in words`,
    run('inspect', snapshot, '--at', String(t)).includes(sizeText(at.requested_bytes)), true);
}

for (const snapshot of snapshots) {
  const name = `${basename(dirname(snapshot))}/${basename(snapshot)}`, page = join(work, 'sums.html');
  run('inspect', snapshot, '--html', page);
  const model = new Model(await readData(readFileSync(page, 'utf8').match(/id="data">([^<]*)</)[1]));
  const instants = new Set([0, model.facts.atEvent + 1, model.facts.peakEvent + 1, model.events]);
  for (let k = 1; k < INSTANTS - 3; k++) instants.add(Math.floor(model.events * k / (INSTANTS - 3)));
  for (const t of instants) compare(name, model, t, snapshot);
}

// Halves go to the even digit, as C prints them.
for (const [bytes, text] of [[1023, '1023 B'], [1152, '1.12 KiB'], [1408, '1.38 KiB'], [1664, '1.62 KiB'], [1920, '1.88 KiB'],
  [1048571, '1.00 MiB'], [1048569, '1023.99 KiB'], [35640 * 1024, '34.80 MiB'], [2 ** 40, '1.00 TiB']]) same(`size ${bytes}`, sizeText(bytes), text);
for (const [name, short] of [['at::_ops::mm::call(at::Tensor const&, at::Tensor const&)', 'at::_ops::mm::call'], ['forward', 'forward'],
  ['void at::native::(anonymous namespace)::launch<float, (char)1>(int)', 'at::native::launch'], ['_ZN2at6native3addEv', 'at::native::add'],
  ['_Z6simplei', 'simple'], ['_ZNK1_bad', '_ZNK1_bad'], ['<module>', '<module>'], ['std::function<void (int)>::operator()(int) const', 'std::function::operator()'],
  ['torch::autograd::generated::ScaledDotProductEfficientAttentionBackward0::apply(std::vector<int>&&)',
    '…::ScaledDotProductEfficientAttentionBackward0::apply']]) same(`name ${name}`, shortName(name), short);
console.log(`${done - failed} of ${done} figures are the same`);
process.exit(failed ? 1 : 0);
