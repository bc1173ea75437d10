/** Keeps an open page up to date: replaces the sections that have changed, and counts ages on. Without this script a page is complete. */

const main = document.getElementById('main');
const live = document.body.dataset.live;
let source;

/** As `durationText` of the commands. */
function durationText(seconds) {
  const short = value => (value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString('en-US'));
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 5940) return `${short(seconds / 60)} min`;
  if (seconds < 172800) return `${short(seconds / 3600)} h`;
  return `${short(seconds / 86400)} days`;
}

function countAges() {
  for (const time of document.querySelectorAll('time:not([data-exact])')) {
    const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
    time.textContent = seconds >= 0 ? `${durationText(seconds)} ago` : `in ${durationText(-seconds)}`;
  }
}

/** A person who types, or reads an opened text, keeps it. */
const keep = {
  beforeNodeMorphed: (from, to) => {
    if (from.nodeType !== Node.ELEMENT_NODE) return true;
    if (from.tagName === 'DETAILS' && from.open) to.setAttribute('open', '');
    return from !== document.activeElement || !/^(INPUT|SELECT)$/.test(from.tagName);
  },
};

/** Sections come in the order of the page. A section that is new goes behind the one before it. */
function show({at, all, changed}) {
  for (const {id, html} of changed) {
    const section = document.getElementById(id) ?? document.createElement('section');
    const isAtEnd = [...section.querySelectorAll('pre.log')].map(
      log => log.scrollTop + log.clientHeight >= log.scrollHeight - 4,
    );
    if (!section.id) {
      section.id = id;
      const before = document.getElementById(all[all.indexOf(id) - 1] ?? 'fresh');
      main.insertBefore(section, before?.nextSibling ?? null);
    }
    Idiomorph.morph(section, html, {morphStyle: 'innerHTML', callbacks: keep});
    section.querySelectorAll('pre.log').forEach((log, index) => {
      if (isAtEnd[index] ?? true) log.scrollTop = log.scrollHeight;
    });
  }
  for (const section of [...main.children])
    if (section.id !== 'fresh' && !all.includes(section.id)) section.remove();
  const age = document.querySelector('#fresh time');
  if (age) age.dateTime = at;
  document.body.classList.remove('offline');
  countAges();
}

/** A page that nobody sees asks for nothing. */
function connect() {
  source?.close();
  source = undefined;
  if (document.hidden || live === undefined) return;
  source = new EventSource(live);
  source.addEventListener('sections', event => show(JSON.parse(event.data)));
  source.addEventListener('error', () => document.body.classList.add('offline'));
}

/** A stream in the grid: its number on hover, its page on click. */
function streamAt(event) {
  const grid = event.target.closest?.('svg.grid[data-columns]');
  if (!grid) return undefined;
  const {left, top, width} = grid.getBoundingClientRect();
  const cell = width / Number(grid.dataset.columns);
  const number =
    Math.floor((event.clientY - top) / cell) * Number(grid.dataset.columns) +
    Math.floor((event.clientX - left) / cell);
  return number < Number(grid.dataset.streams) ? {grid, id: String(number).padStart(3, '0')} : undefined;
}

let title;
document.addEventListener('mousemove', event => {
  const found = streamAt(event);
  if (!found) return;
  title ??= document.createElementNS('http://www.w3.org/2000/svg', 'title');
  title.textContent = `stream ${found.id}`;
  if (title.parentNode !== found.grid) found.grid.prepend(title);
});
document.addEventListener('click', event => {
  const found = streamAt(event);
  if (found) location.assign(`${location.pathname}/streams/${found.id}`);
  const line = event.target.closest?.('code.command');
  if (line)
    navigator.clipboard?.writeText(line.textContent).then(() => {
      line.classList.add('copied');
      setTimeout(() => line.classList.remove('copied'), 1200);
    });
});
document.addEventListener('visibilitychange', connect);
for (const log of document.querySelectorAll('pre.log')) log.scrollTop = log.scrollHeight;
setInterval(countAges, 1000);
connect();
