// Words for sizes and times, elements, colours and canvases. Text from the snapshot becomes text nodes only, never markup.
const $ = id => document.getElementById(id);

// Two decimals as in every other report (hri_size_text): C rounds an exact half to the even digit, toFixed does not.
function sizeText(bytes) {
  const sign = bytes < 0 ? '−' : '', units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = Math.abs(bytes), unit = 0;
  while (value >= 1023.995 && unit < 5) { value /= 1024; unit++; }
  if (!unit) return `${sign}${value} B`;
  const cents = value * 100, whole = Math.floor(cents), rest = cents - whole;
  const rounded = rest > 0.5 || rest === 0.5 && whole % 2 ? whole + 1 : whole;
  return `${sign}${Math.floor(rounded / 100)}.${String(rounded % 100).padStart(2, '0')} ${units[unit]}`;
}
const numberFormat = new Intl.NumberFormat('en'), countText = n => numberFormat.format(Math.round(n));
const largestIn = (values, least) => { let most = least; for (let i = 0; i < values.length; i++) if (values[i] > most) most = values[i];
  return most; };
function timeText(us) {
  if (us < 1e3) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1e3).toFixed(us < 1e4 ? 2 : 1)} ms`;
  if (us < 6e7) return `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)} s`;
  const seconds = Math.round(us / 1e6);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${countText(Math.floor(seconds / 3600))} h ${Math.floor(seconds / 60) % 60} min`;
}
const shareText = (part, whole) => whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : '–';

// A hostile or damaged name may hold controls and direction marks that make text lie: they are shown as boxes.
const safeText = text => text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, '\u25af');

function el(tag, properties, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key in node && key !== 'list') node[key] = value;
    else node.setAttribute(key, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child instanceof Node ? child
    : safeText(String(child)));
  return node;
}

// columns: [{name, number, ...}] with how a cell is set, rows: arrays of texts or nodes. `spare` columns go first where room is short.
function table(columns, rows, caption) {
  // Where room is short a row becomes a card, and its cells say what they are; heads that sort stay as they are.
  const labelled = columns.every(c => typeof c.name === 'string'), wide = columns.some(c => c.wide);
  const cell = (value, i, tag) => {
    const node = el(tag, {className: ['number', 'wide', 'share', 'plain', 'spare'].filter(kind => columns[i][kind]).join(' ')}, value);
    if (tag === 'td' && labelled && wide && !columns[i].wide && columns[i].name) node.dataset.label = columns[i].name.replace(' (inferred)', '');
    return node;
  };
  return el('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': caption},
    el('table', {className: wide ? labelled ? 'cards labelled' : 'cards' : ''},
    el('caption', {className: 'hidden'}, caption),
    el('thead', {}, el('tr', {}, columns.map((c, i) => { const th = cell(c.name, i, 'th'); th.scope = 'col'; return th; }))),
    el('tbody', {}, rows.map(row => el('tr', {}, row.map((value, i) => cell(value, i, 'td')))))));
}

// Fills the table behind a picture when it is opened, and again when the picture changed while it is open.
function tableBehind(id, make) {
  const details = $(id);
  const fill = () => {
    if (!details.open) return;
    while (details.children.length > 1) details.lastChild.remove();
    details.append(make());
  };
  details.addEventListener('toggle', fill);
  return fill;
}

// ---- Colours: Paul Tol's "bright" and "muted" sets, told apart under the common colour blindnesses; hatches besides. ----
const KNOWN = [[/param|weight|model/i, '#4477aa', 0], [/grad/i, '#ee6677', 1], [/optim|state/i, '#aa3377', 2], [/activ|saved/i, '#ccbb44', 0],
  [/temp|work|scratch/i, '#66ccee', 3], [/input|data|batch/i, '#228833', 4], [/loss|logit/i, '#882255', 5], [/unknown|^others$|^$/i, '#a7a9ac', 6]];
const SPARE = [['#44aa99', 1], ['#ddcc77', 2], ['#332288', 3], ['#999933', 4], ['#cc6677', 5], ['#88ccee', 1], ['#117733', 2], ['#aa4499', 4]];

function paletteFor(names) {
  const used = new Set();
  let spare = 0;
  return names.map(name => {
    const known = KNOWN.find(([pattern, colour]) => pattern.test(name) && !used.has(colour));
    const [colour, hatch] = known ? known.slice(1) : SPARE[spare++ % SPARE.length];
    used.add(colour);
    return {name, colour, hatch};
  });
}

function hatched(colour, hatch, ink) {
  const tile = document.createElement('canvas'), g = tile.getContext('2d');
  tile.width = tile.height = 8;
  g.fillStyle = colour;
  g.fillRect(0, 0, 8, 8);
  g.strokeStyle = ink;
  g.lineWidth = 1;
  g.beginPath();
  const line = (x, y, u, v) => { g.moveTo(x, y); g.lineTo(u, v); };
  if (hatch === 1 || hatch === 6) { line(-2, 10, 10, -2); line(-2, 2, 2, -2); line(6, 10, 10, 6); }
  if (hatch === 2 || hatch === 6) { line(-2, -2, 10, 10); line(6, -2, 10, 2); line(-2, 6, 2, 10); }
  if (hatch === 3) { g.rect(2, 2, 0.6, 0.6); g.rect(6, 6, 0.6, 0.6); }
  if (hatch === 4) line(0, 4.5, 8, 4.5);
  if (hatch === 5) line(4.5, 0, 4.5, 8);
  g.stroke();
  return g.createPattern(tile, 'repeat');
}

const style = {};
function readStyle(palette) {
  const probe = document.body.appendChild(el('span', {hidden: true}));
  const value = name => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  for (const name of ['ink', 'quiet', 'line', 'paper', 'sheet', 'alarm', 'accent', 'free', 'hatch']) style[name] = value(name);
  const family = getComputedStyle(probe).fontFamily;
  style.font = '12px ' + family;
  style.small = '11px ' + family;
  probe.remove();
  for (const c of palette) c.fill = hatched(c.colour, c.hatch, style.hatch);
  style.freeFill = hatched(style.sheet, 1, style.free);
  style.pendingFill = hatched(style.sheet, 6, style.alarm);
}

// A canvas as wide as its place and `height` high, in CSS pixels, sharp on any screen.
function canvasFor(canvas, height) {
  const width = Math.max(1, Math.floor(canvas.parentElement.clientWidth)), ratio = Math.min(window.devicePixelRatio || 1, 3);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = height + 'px';
  }
  const g = canvas.getContext('2d');
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = style.font;
  g.textBaseline = 'middle';
  g.textAlign = 'left';
  return {g, width, height};
}

// Text that fits `width`, shortened at its end; nothing where not even a few letters fit.
function fitText(g, text, x, y, width) {
  text = safeText(text);
  if (width < 14) return;
  if (g.measureText(text).width > width) {
    let low = 0, high = text.length;
    while (low < high) { const middle = low + high + 1 >> 1; if (g.measureText(text.slice(0, middle) + '…').width <= width) low = middle;
      else high = middle - 1; }
    if (low < 2) return;
    text = text.slice(0, low) + '…';
  }
  g.fillText(text, x, y);
}

function haloText(g, text, x, y) {
  g.lineJoin = 'round';
  g.lineWidth = 3;
  g.strokeStyle = style.sheet;
  g.strokeText(text, x, y);
  g.fillText(text, x, y);
}

// Black or white, whichever reads better on the colour (relative luminance, WCAG 2).
function inkOn(colour) {
  const part = i => { const v = parseInt(colour.slice(i, i + 2), 16) / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) > 0.3 ? '#111' : '#fff';
}

// Steps of an axis: 1, 2 or 5 times a power of ten, or a power of two for bytes.
function steps(span, count, binary) {
  const rough = span / count;
  if (binary) return 2 ** Math.ceil(Math.log2(Math.max(rough, 1)));
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9))), share = rough / power;
  return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

// One call per frame, however often it is asked for.
function perFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  };
}

function tipFor(canvas) {
  const tip = canvas.parentElement.querySelector('.tip');
  return {
    show(x, y, lines) {
      tip.replaceChildren(...lines.map(line => el('div', {}, line)));
      tip.hidden = false;
      const box = canvas.parentElement;
      tip.style.left = Math.max(0, Math.min(x + 14, box.clientWidth - tip.offsetWidth - 4)) + 'px';
      tip.style.top = (y + 18 + tip.offsetHeight > box.clientHeight + 60 ? y - tip.offsetHeight - 8 : y + 18) + 'px';
    },
    hide() { tip.hidden = true; }
  };
}
const pointIn = (canvas, event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
