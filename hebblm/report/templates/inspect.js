'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const text = document.getElementById('text'), detail = document.getElementById('detail');
const spans = Array.from(text.querySelectorAll('span'));
spans.forEach((span, index) => { span.index = index; });
const oov = new Set(data.oov);
const select = document.getElementById('method'), jump = document.getElementById('jump');
let method = data.chosen, current = -1, ranking = null, step = {gain: -1, loss: -1};

function loss(name, index) { const value = data.nll[name][index]; return value === null ? Infinity : value / 1000; }
function gain(name, index) {
  const base = loss(data.base, index), other = loss(name, index);
  return base === other ? 0 : base - other;
}
function level(value) {
  const size = data.levels.filter(bound => Math.abs(value) >= bound).length;
  return size === 0 ? '' : (value > 0 ? 'g' : 'l') + size;
}
function shade() {
  spans.forEach((span, index) => {
    span.className = [level(gain(method, index)), oov.has(index) ? 'o' : ''].join(' ').trim();
  });
  ranking = null;
  step = {gain: -1, loss: -1};
}
function node(tag, content, name) {
  const made = document.createElement(tag);
  made.textContent = content;
  if (name) made.className = name;
  return made;
}
function table(caption, headers, rows) {
  const made = document.createElement('table'), head = made.createTHead().insertRow(), body = made.createTBody();
  headers.forEach((title, at) => {
    const cell = node('th', title, at === 0 ? 'w' : '');
    cell.scope = 'col';
    head.append(cell);
  });
  rows.forEach(row => {
    const line = body.insertRow();
    row.forEach((cell, at) => {
      const slot = line.insertCell();
      if (at === 0) slot.className = 'w';
      if (cell instanceof Node) slot.append(cell); else slot.textContent = cell;
    });
  });
  detail.append(node('h2', caption), made);
}
function digits(value, places) { return Number.isFinite(value) ? value.toFixed(places) : '\u221e'; }
function signed(value) {
  const size = digits(Math.abs(value), 3);
  if (Number(size) === 0) return size;  // neither +0.000 nor a minus before it
  return (value > 0 ? '+' : value < 0 ? '\u2212' : '') + size;
}
function probability(value) {
  const share = Math.exp(-value);
  return share === 0 || share >= 0.001 ? share.toFixed(4) : share.toExponential(2);
}
function contextOf(near) {
  const made = document.createElement('span');
  made.append(node('span', data.texts[near[5]] + ' '), node('b', near[2]));
  return made;
}
function show(index) {
  if (index < 0 || index >= spans.length) return;
  if (current >= 0) { spans[current].classList.remove('at'); }
  current = index;
  spans[index].classList.add('at');
  detail.replaceChildren(node('h2', spans[index].textContent));
  const count = data.counts === null ? 'its count in the training text is not known' : data.counts[index].toLocaleString('en') + ' times in ' + data.counted;
  const known = oov.has(index) ? 'new word' : count;
  detail.append(node('p', data.noun + ' ' + index.toLocaleString('en') + ': ' + known + '.', 'note'));
  table('Under every method', ['Method', 'Probability', 'Loss', 'Gain'], data.methods.map(([name, title]) => [
    name === method ? node('b', title) : title, probability(loss(name, index)), digits(loss(name, index), 3),
    name === data.base ? '' : signed(gain(name, index))]));
  const parts = (data.components[method] || []).filter(([, shares]) => index < shares.length);
  if (parts.length) {
    const title = data.methods.find(([name]) => name === method)[1];
    table('What gives ' + title + ' this probability', ['Part', 'Percent'], parts.map(([name, shares]) =>
      [name, (shares[index] / 10).toFixed(1)]));
  }
  const near = data.neighbors[index];
  if (near === undefined) {
    detail.append(node('p', data.logged ? 'Neighbours were logged for the beginning only.' :
      'Neighbours were not logged.', 'note'));
  } else if (near.length === 0) {
    detail.append(node('p', 'The memory was empty.', 'note'));
  } else {
    table('Nearest neighbours', ['Context and label', 'Weight', 'Distance', 'Place'], near.map(item =>
      [contextOf(item), item[4], item[3], (item[0] ? 'here ' : 'training ') + item[1].toLocaleString('en')]));
  }
}
function go(index) {
  if (!(index >= 0 && index < spans.length)) return;
  if (current >= 0) spans[current].tabIndex = -1;
  spans[index].tabIndex = 0;
  spans[index].focus();
  spans[index].scrollIntoView({block: 'center'});
  show(index);
}
function extreme(kind) {
  if (ranking === null) {
    ranking = spans.map((_, index) => index).sort((a, b) => gain(method, b) - gain(method, a));
  }
  step[kind] = (step[kind] + 1) % spans.length;
  go(ranking[kind === 'gain' ? step.gain : spans.length - 1 - step.loss]);
}
text.addEventListener('mouseover', event => { if (event.target.index !== undefined) show(event.target.index); });
text.addEventListener('click', event => { if (event.target.index !== undefined) go(event.target.index); });
text.addEventListener('focusin', event => { if (event.target.index !== undefined) show(event.target.index); });
text.addEventListener('keydown', event => {
  const moves = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, PageDown: 100, PageUp: -100};
  if (event.key in moves) {
    event.preventDefault();
    go(Math.min(Math.max(current + moves[event.key], 0), spans.length - 1));
  }
});
select.addEventListener('change', () => { method = select.value; shade(); show(current); });
document.getElementById('gain').addEventListener('click', () => extreme('gain'));
document.getElementById('loss').addEventListener('click', () => extreme('loss'));
jump.addEventListener('change', () => go(Number(jump.value)));
document.querySelector('form').addEventListener('submit', event => event.preventDefault());
select.value = method;
shade();
const linked = /^#t=([0-9]+)$/.exec(location.hash);
if (spans.length) {
  spans[0].tabIndex = 0;
  show(linked ? Math.min(Number(linked[1]), spans.length - 1) : 0);
}
document.documentElement.dataset.ready = 'yes';
