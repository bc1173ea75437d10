/** Pieces of pages. Every value is escaped, and characters that hide or turn text are replaced. */
import {html as escaped} from 'hono/html';
import type {HtmlEscapedString} from 'hono/utils/html';
import {type Column, durationText, numberText} from '../../client/text/format.ts';
import {withHints} from '../../client/text/hints.ts';
import {utcText} from '../../shared/domain/time.ts';

export type Html = HtmlEscapedString;
/** Values of a template. Booleans, null and undefined show nothing. */
export type Part = Html | string | number | boolean | null | undefined | readonly Part[];

/** Control characters but the end of a line, format characters and line separators. */
const UNSAFE = /[^\P{Cc}\n]|[\p{Cf}\u2028\u2029]/gu;

export function html(strings: TemplateStringsArray, ...parts: Part[]): Html {
  return escaped(strings, ...parts.map(safe)) as Html;
}

function safe(part: Part): unknown {
  if (typeof part === 'string') return part.replace(UNSAFE, '\ufffd');
  return Array.isArray(part) ? part.map(safe) : part;
}

export function address(...segments: string[]): string {
  return `/${segments.map(segment => segment.split('/').map(encodeURIComponent).join('/')).join('/')}`;
}

export function link(href: string, text: Part): Html {
  return html`<a href="${href}">${text}</a>`;
}

/** Links to the pages of TPUs, with commas between. */
export function tpuLinks(names: readonly string[]): Html {
  return html`${names.map((name, index) => html`${index > 0 ? ', ' : ''}${link(address('tpus', name), name)}`)}`;
}

/** `5.2 min ago` or `in 12 s`, with the exact time on hover. The page counts on by itself. */
export function time(at: string | null, now: number): Html {
  if (at === null || Number.isNaN(Date.parse(at))) return html`<span class="quiet">never</span>`;
  const seconds = (now - Date.parse(at)) / 1000;
  const text = seconds >= 0 ? `${durationText(seconds)} ago` : `in ${durationText(-seconds)}`;
  return html`<time datetime="${at}" title="${utcText(at)}">${text}</time>`;
}

/** Shapes of states: a shape says the same as its colour. */
const MARKS = {
  good: '✓',
  busy: '◐',
  wait: '○',
  hold: '‖',
  bad: '✕',
  off: '–',
} as const;
export type Mark = keyof typeof MARKS;

const MARK_OF: Record<string, Mark> = {
  ...{active: 'busy', paused: 'hold', completed: 'good', failed: 'bad', stopped: 'off'},
  ...{pending: 'wait', in_progress: 'busy', scheduled: 'wait', running: 'busy', cancelled: 'off'},
  ...{STARTING: 'wait', READY: 'good', WORKING: 'busy', DRAINING: 'hold', PREEMPTED: 'bad', MISSING: 'bad'},
  ...{DELETING: 'off', GONE: 'off', HELD: 'hold', done: 'good', rejected: 'bad', waiting: 'wait'},
  ...{exited: 'good', timeout: 'bad', refused: 'bad', lost: 'bad', applied: 'good'},
};

export function markOf(status: string): Mark {
  return MARK_OF[status] ?? 'off';
}

export function state(status: string, mark = markOf(status)): Html {
  return html`<span class="state ${mark}"><span aria-hidden="true">${MARKS[mark]}</span> ${status.replaceAll('_', ' ').toLowerCase()}</span>`;
}

export function bar(share: number | null, text: string): Html {
  if (share === null) return html`<span class="seen">${text}</span>`;
  const width = Math.max(0, Math.min(100, share * 100)).toFixed(1);
  return html`<span class="bar"><svg viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="100" height="4"/><rect class="fill" width="${width}" height="4"/></svg><span>${text}</span></span>`;
}

/** A line that a person copies into a terminal, as the person has to type it there. */
export function command(line: string): Html {
  return html`<code class="command">${withHints(`\`${line}\``).slice(1, -1)}</code>`;
}

export function withCommands(text: string): Html {
  const parts = text.split('`');
  return html`${parts.map((part, index) => (index % 2 === 1 ? command(part) : part))}`;
}

/** Text of an empty place: why it is empty, and the commands of the next steps. */
export function empty(text: string, ...lines: string[]): Html {
  return html`<div class="empty"><p>${text}</p>${lines.map(line => html`<p>${command(line)}</p>`)}</div>`;
}

export function figures(values: readonly [name: string, value: Part, more?: Part][]): Html {
  return html`<dl class="figures">${values.map(
    ([name, value, more]) =>
      html`<div><dt>${name}</dt><dd>${value}${more ? html` <small>${more}</small>` : ''}</dd></div>`,
  )}</dl>`;
}

/** Names with their values, as a list. Empty values are left out. */
export function facts(values: readonly [name: string, value: Part][]): Html {
  const shown = values.filter(([, value]) => value !== null && value !== '');
  return html`<dl class="facts">${shown.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

/** A table. On a narrow screen each row is a list with the titles: roles keep the table for a screen reader. */
export function table<Row>(
  caption: string,
  columns: readonly Column<Row, Part>[],
  rows: readonly Row[],
): Html {
  const kind = ({right}: Column<Row, Part>) => (right ? 'number' : '');
  return html`<table role="table"><caption>${caption}</caption><thead><tr>${columns.map(
    column => html`<th scope="col" class="${kind(column)}">${column.title}</th>`,
  )}</tr></thead><tbody role="rowgroup">${rows.map(
    row =>
      html`<tr role="row">${columns.map(
        column =>
          html`<td role="cell" class="${kind(column)}" data-title="${column.title}"><div>${column.cell(row)}</div></td>`,
      )}</tr>`,
  )}</tbody></table>`;
}

/** `… 12 further runs`. */
export function further(count: number, noun: string): Html | string {
  return count > 0 ? html`<p class="quiet">… ${numberText(count)} further ${noun}</p>` : '';
}
