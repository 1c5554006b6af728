// Another snapshot beside this one: what changed. Its levels are drawn by the timeline.

const changeText = (before, after) => (after >= before ? '+' : '−') + sizeText(Math.abs(after - before));

function differences(title, what, rows, all) {
  const number = name => ({name, number: true});
  const amount = (bytes, count) => count ? `${sizeText(bytes)} in ${countText(count)}` : '–';
  const cells = rows.map(([name, before, beforeCount, after, afterCount]) =>
    [changeText(before, after), amount(before, beforeCount), amount(after, afterCount), name]);
  const more = all > rows.length ? [el('p', {className: 'quiet'}, `and ${countText(all - rows.length)} smaller differences`)] : [];
  return [el('h3', {}, title), rows.length ? table([number('Change'), number('Before'), number('After'), {name: what, wide: true}], cells, title)
    : el('p', {className: 'quiet'}, 'no difference'), ...more];
}

function againstParts(model) {
  const {against, atEvent} = model.facts, number = name => ({name, number: true});
  const sums = against.sums.map(([name, before, after]) => [name, sizeText(before), sizeText(after), changeText(before, after)]);
  const about = `Before: ${against.title}, after event ${countText(against.after)} of ${countText(against.events)}. `
    + `After: this snapshot, after event ${countText(atEvent + 1)} of ${countText(model.events)}.`;
  return [el('p', {className: 'quiet'}, about),
    table([{name: '', plain: true}, number('Before'), number('After'), number('Change')], sums, 'Sums'),
    ...differences('Live by category', 'Category', against.byCategory, against.categoryRows),
    ...differences('Live by stack', 'Stack', against.byStack, against.stackRows)];
}
