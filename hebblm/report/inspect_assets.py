"""Style and behaviour of the token page. The script reads one JSON block and only ever sets text, never markup."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1d2228; --paper: #fff; --dim: #5d6670; --line: #d8dde2; --mark: #1d2228;
  --g1: #e3eefa; --g2: #bcd8f3; --g3: #86b9e8; --g4: #4d96d6; --l1: #fdeedd; --l2: #fad3a6; --l3: #f3b06c;
  --l4: #e38a32 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --paper: #16191d; --dim: #9aa4ae; --line: #343b43;
  --mark: #fff; --g1: #17293b; --g2: #1c3f61; --g3: #22598d; --g4: #2a74ba; --l1: #33251a; --l2: #5a3a17;
  --l3: #865215; --l4: #b06c17 } }
* { box-sizing: border-box }
body { font: 16px/1.6 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 84rem; padding: 1.2rem }
h1 { font-size: 1.45rem; margin: 0 0 .2rem } h2 { font-size: 1rem; margin: 1rem 0 .3rem }
.note { color: var(--dim); font-size: .86rem; margin: .2rem 0; overflow-wrap: anywhere }
form { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: center; margin: 1rem 0 }
button, select, input { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--dim);
  border-radius: .3rem; padding: .15rem .5rem }
input { width: 7rem }
.key span { padding: 0 .5rem } .columns { display: grid; grid-template-columns: minmax(0, 1fr) 27rem; gap: 1.6rem }
#text p { margin: 0 0 .7rem; content-visibility: auto; contain-intrinsic-size: auto 14rem }
#text p::before { content: attr(data-from); color: var(--dim); font-size: .75rem; margin-right: .5rem }
#text span { border-radius: .2rem; padding: 0 .12rem; cursor: pointer; overflow-wrap: anywhere }
.o { border-bottom: 2px dotted currentColor }
.g1 { background: var(--g1) } .g2 { background: var(--g2) } .g3 { background: var(--g3) } .g4 { background: var(--g4) }
.l1 { background: var(--l1) } .l2 { background: var(--l2) } .l3 { background: var(--l3) } .l4 { background: var(--l4) }
.l1, .l2, .l3, .l4 { text-decoration: underline 1px }
#text span:focus, #text .at { outline: 2px solid var(--mark); outline-offset: 1px }
#detail { position: sticky; top: .6rem; max-height: calc(100vh - 1.2rem); overflow: auto; align-self: start;
  border: 1px solid var(--line); border-radius: .4rem; padding: .7rem .9rem }
#detail table { border-collapse: collapse; width: 100%; font-size: .87rem; font-variant-numeric: tabular-nums }
#detail th, #detail td { text-align: right; padding: .1rem .5rem .1rem 0; vertical-align: top }
#detail th { color: var(--dim); font-weight: 500; border-bottom: 1px solid var(--line) }
#detail .w { text-align: left; overflow-wrap: anywhere } #detail b { font-weight: 700 }
@media (max-width: 60rem) { .columns { grid-template-columns: 1fr }
  #detail { position: sticky; top: auto; bottom: 0; max-height: 45vh; background: var(--paper) } }
@media print { #detail, form { display: none } .columns { display: block }
  body { max-width: none; font-size: 10pt; padding: 0 } #text p { content-visibility: visible }
  #text span { print-color-adjust: exact; -webkit-print-color-adjust: exact } }
"""

SCRIPT = """
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
function digits(value, places) { return Number.isFinite(value) ? value.toFixed(places) : '\\u221e'; }
function signed(value) { return (value > 0 ? '+' : '') + digits(value, 3).replace('-', '\\u2212'); }
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
  const count = data.counts[index].toLocaleString('en');
  const known = oov.has(index) ? 'out of the vocabulary' : count + ' times in training';
  detail.append(node('p', 'Token ' + index.toLocaleString('en') + ': ' + known + '.', 'note'));
  table('Under every method', ['Method', 'Probability', 'Loss', 'Gain'], data.methods.map(([name, title]) => [
    name === method ? node('b', title) : title, probability(loss(name, index)), digits(loss(name, index), 3),
    name === data.base ? '' : signed(gain(name, index))]));
  const near = data.neighbors[index];
  if (near === undefined) {
    detail.append(node('p', data.logged ? 'Neighbours were logged for the first tokens only.' :
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
"""
