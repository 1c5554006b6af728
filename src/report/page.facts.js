// What does not depend on the range in view: the figures of the whole, the sums of the instant, notes, and the inspection's lists.

function figure(name, value, note) {
  return el('div', {}, el('dt', {}, name), el('dd', {}, value, note ? el('small', {}, note) : null));
}

function sourceText(model) {
  const {facts} = model, start = model.firstTime ? new Date(model.firstTime / 1000) : null;
  const day = start && !isNaN(start) ? start.toISOString().replace('T', ' ').slice(0, 19) + ' UTC' : '';
  return safeText([facts.device < 0 ? 'CPU' : `device ${facts.device}`, facts.format, `${countText(facts.events)} events`,
    `${countText(facts.lives)} allocations`, model.hasTime ? timeText(model.time[model.events]) : 'no times', day].filter(Boolean).join(' · '));
}

function figures(model) {
  const {facts} = model, most = Math.max(facts.peakReserved, facts.peakLive), of = model.hasSegments ? 'reserved' : 'live';
  const share = facts.peakReserved ? `${shareText(facts.peakLive, facts.peakReserved)} of the most reserved` : '';
  const list = [figure('Most live', sizeText(facts.peakLive), share)];
  if (model.hasSegments) list.push(figure('Most reserved', sizeText(facts.peakReserved)));
  for (const line of facts.lines) {
    const room = line.bytes - most;
    const note = room < 0 ? `the most ${of} exceeds it by ${sizeText(-room)}` : `${sizeText(room)} above the most ${of}`;
    list.push(figure(line.name, sizeText(line.bytes), note));
  }
  const last = facts.ooms.at(-1);
  list.push(figure('Failed requests', countText(facts.oomTotal), last ? `last: ${sizeText(last.size)}` : 'none in this trace'));
  if (facts.steps.length) list.push(figure('Steps', countText(facts.steps.length), `from ${facts.stepsFrom}`));
  return el('dl', {className: 'facts'}, list);
}

function notes({facts}) {
  const list = [];
  if (facts.categoriesInferred) list.push('Categories are inferred from stacks and lifetimes: the file does not state them.');
  if (!facts.hasState) list.push('The file states no segments: reserved memory and the segment map are unknown.');
  if (!facts.beganEmpty) list.push('The trace does not begin with an empty allocator: what lived before has no recorded beginning.');
  if (facts.odd) list.push(`${countText(facts.odd)} events contradict others and were used as far as possible.`);
  return el('div', {className: 'quiet'}, list.map(note => el('p', {}, note)));
}

// Where the memory of the instant is, as one bar: the parts of what is reserved, and at a failure what the device had free.
function sumsBar(model, sums, deviceFree) {
  const colours = [style.accent, '#66ccee', '#ee6677', style.free, '#ccbb44'], total = sums.reserved + deviceFree;
  const all = model.facts.parts.map((name, k) => [name, sums.parts[k], colours[k]]);
  const parts = [...all, ['free on the device', deviceFree, '#44aa99']].filter(([, bytes]) => bytes > 0);
  const words = parts.map(([name, bytes]) => `${name} ${sizeText(bytes)} (${shareText(bytes, total)})`);
  const title = `Reserved at this instant: ${sizeText(sums.reserved)}`
    + (deviceFree ? `; with ${sizeText(deviceFree)} free on the device ${sizeText(total)}` : '');
  const bar = el('div', {className: 'sums', role: 'img', 'aria-label': `${title}: ${words.join(', ')}`});
  const legend = el('ul', {className: 'legend'});
  parts.forEach(([, bytes, colour], i) => {
    const piece = el('span', {title: words[i]}), box = el('span', {className: 'swatch'});
    piece.style.flexGrow = bytes / total;
    piece.style.background = box.style.background = colour;
    bar.append(piece);
    legend.append(el('li', {}, box, words[i]));
  });
  return [el('h3', {}, title), bar, legend];
}

// Failures, growth and steps; `go` makes a button that goes to an instant.
function failuresTable(model, go) {
  const {ooms, oomTotal} = model.facts, number = name => ({name, number: true});
  const rows = ooms.map(oom => [go(`event ${countText(oom.event + 1)}`, oom.event + 1), sizeText(oom.size), sizeText(oom.deviceFree),
    sizeText(oom.live), sizeText(oom.reserved), oom.stage, stackCell(model, oom.stack)]);
  return [el('h3', {}, `Failed requests (${countText(oomTotal)})`), table([{name: 'After', plain: true}, number('Request'), number('Device free'),
    number('Live'), number('Reserved'), {name: 'Stage', plain: true}, {name: 'Stack', wide: true}], rows, 'Failed requests')];
}

function growthTable(model) {
  const {growth, categories} = model.facts, number = name => ({name, number: true});
  const often = g => g.fromBefore ? `${countText(g.fromBefore)} from before the recording` : `${sizeText(g.perStep)} per ${g.by}, in ${g.grown} of ${g.seen}`;
  const rows = growth.map(g => [sizeText(g.bytes), countText(g.count), g.kind, g.goesOn ? often(g) : '–', categories[g.category] || '',
    stackCell(model, g.stack)]);
  return [el('h3', {}, 'What outlives its step'), table([number('Bytes'), number('Count'), {name: 'Growth', plain: true},
    {name: 'How often', plain: true}, {name: 'Category', plain: true}, {name: 'Stack', wide: true}], rows, 'What outlives its step')];
}

function stepsTable(model, go) {
  const {steps, outlierStep, usualPeak} = model.facts, number = name => ({name, number: true});
  const rows = steps.slice(0, 1000).map(([first, count, peak, left], i) => [go(`step ${i + 1}`, first + 1), countText(count), sizeText(peak),
    sizeText(left), i === outlierStep ? `stands out: the usual peak is ${sizeText(usualPeak)}` : '']);
  return [el('h3', {}, steps.length > 1000 ? 'The first 1,000 steps' : 'Steps'),
    table([{name: 'Step', plain: true}, number('Events'), number('Most live'), number('Left at its end'), {name: '', plain: true}], rows,
      'Steps')];
}
