// What was live at the instant: by stack, category or size, and the largest tensors.

function framesList(model, stack) {
  const frames = model.stacks[stack];
  return el('ul', {className: 'frames'}, [...frames].map(f => { const {name, file, line} = model.frames[f];
    return el('li', {}, wholeFrame({name, file, line})); }));
}

// The innermost frames in full, for a tip.
function stackTitle(model, stack) {
  const frames = [...model.stacks[stack]].slice(0, 12).map(f => safeText(wholeFrame(model.frames[f])));
  return frames.join('\n') + (model.stacks[stack].length > 12 ? '\n…' : '');
}

// The label of a stack that opens to all its frames, which are made when it does.
function stackCell(model, stack) {
  if (!model.stacks[stack].length) return model.label(stack);
  const details = el('details', {ontoggle: () => { if (details.open && details.children.length === 1) details.append(framesList(model,
    stack)); }}, el('summary', {title: stackTitle(model, stack)}, model.label(stack)));
  return details;
}

function swatch(app, c) {
  const canvas = el('canvas', {className: 'swatch', width: 24, height: 24, 'aria-hidden': 'true'}), g = canvas.getContext('2d');
  g.fillStyle = app.palette[c].fill;
  g.scale(2, 2);
  g.fillRect(0, 0, 12, 12);
  return canvas;
}
// The swatch is that of the picture, where rare categories are one; the name is the allocation's own.
function categoryCell(app, life) {
  const name = app.model.categoryName(life);
  return [swatch(app, app.model.category[life]), el('span', {className: 'name', title: safeText(name)}, name)];
}

class Live {
  constructor(app) {
    Object.assign(this, {app, by: 'stack', rows: 12});
    for (const [key, text] of [['stack', 'Stack'], ['largest', 'Largest tensors'], ['category', 'Category'], ['size', 'Size']])
      $('live-by').append(el('button', {type: 'button', onclick: () => { this.by = key; this.rows = 12; this.show(); }, value: key}, text));
  }
  groups(key) {
    const {lives} = this.app.model, {category} = lives, groups = new Map();
    for (const i of this.app.live) {
      const k = key(i), group = groups.get(k);
      if (!group) groups.set(k, {life: i, bytes: lives.size[i], count: 1, same: lives.size[i], category: category[i]});
      else {
        group.mixed ||= category[i] !== group.category;
        group.bytes += lives.size[i];
        group.count++;
        if (group.same !== lives.size[i]) group.same = 0;
        if (lives.size[i] > lives.size[group.life]) group.life = i;
      }
    }
    return [...groups.values()].sort((a, b) => b.bytes - a.bytes);
  }
  find() {
    const {model} = this.app, {lives} = model;
    if (this.by === 'stack') return this.groups(i => model.stackKey(i));
    if (this.by === 'category') return this.groups(i => lives.category[i]);
    if (this.by === 'size') return this.groups(i => lives.size[i]);
    return largestOf(this.app.live, lives.size, 500).map(i => ({life: i, bytes: lives.size[i], count: 1, same: lives.size[i]}));
  }
  show() {
    const {app} = this, all = this.find();
    for (const button of $('live-by').children) button.setAttribute('aria-pressed', button.value === this.by);
    const columns = this.columns(all.length ? all[0].bytes : 1).filter(column => column.name !== null);
    const rows = all.slice(0, this.rows).map(group => columns.map(column => column.cell(group)));
    $('live-table').replaceChildren(table(columns, rows, `Live after event ${app.at}, by ${this.by}`),
      el('div', {className: 'pages quiet'}, this.rest(all)));
  }
  columns(most) {
    const {app} = this, {model} = app, {lives} = model, largest = this.by === 'largest';
    const bar = bytes => {
      const node = el('span', {className: 'bar', 'aria-hidden': 'true'});
      node.style.width = Math.max(1, 90 * bytes / most) + 'px';
      return node;
    };
    return [{name: 'Bytes', number: true, cell: group => sizeText(group.bytes)},
      {name: 'Share', number: true, cell: group => shareText(group.bytes, app.liveBytes)},
      {name: '', share: true, cell: group => bar(group.bytes)},
      largest ? {name: 'Address', plain: true, cell: group => model.address(group.life)}
        : {name: 'Count', number: true, cell: group => countText(group.count)},
      largest ? {name: 'Made by', spare: true, cell: group => this.made(group.life)}
        : {name: 'Each', number: true, spare: true, cell: group => group.same ? sizeText(group.same) : 'mixed'},
      {name: this.by === 'size' ? null : model.facts.categoriesInferred ? 'Category (inferred)' : 'Category', plain: true,
        cell: group => [...categoryCell(app, group.life), group.mixed ? ', mixed' : '']},
      {name: this.by === 'category' ? null : this.by === 'size' ? 'Stack of one of them' : 'Stack', wide: true,
        cell: group => stackCell(model, lives.stack[group.life])}];
  }
  rest(all) {
    const {app} = this, bytes = all.slice(this.rows).reduce((sum, group) => sum + group.bytes, 0);
    if (all.length <= this.rows) return `All ${countText(all.length)} rows, ${sizeText(app.liveBytes)} in ${countText(app.live.length)} allocations.`;
    return [`${countText(all.length - this.rows)} more rows hold ${sizeText(bytes)} (${shareText(bytes, app.liveBytes)})`,
      el('button', {type: 'button', onclick: () => { this.rows += 50; this.show(); }}, 'Show 50 more')];
  }
  made(life) {
    const {model} = this.app, t = model.lives.alloc[life];
    return t === 0 ? 'before the trace' : `event ${countText(t)}`;
  }
}

// The `count` members of `list` with the largest values, largest first.
function largestOf(list, values, count) {
  if (list.length <= 4 * count) return Array.from(list).sort((a, b) => values[b] - values[a]).slice(0, count);
  let best = [], least = -1;
  for (const i of list) {
    if (values[i] <= least) continue;
    best.push(i);
    if (best.length >= 4 * count) { best.sort((a, b) => values[b] - values[a]); best.length = count; least = values[best[count - 1]]; }
  }
  return best.sort((a, b) => values[b] - values[a]).slice(0, count);
}
