/** The timeline: what happened, the newest first. */

import {type Line, verbOf} from '../../client/events/timeline.ts';
import {timeText} from '../../client/text/format.ts';
import {foldedLines} from '../../client/views/run-page.ts';
import type {readTimeline, TimelineFilter} from '../../client/views/timeline.ts';
import {EVENT_KINDS} from '../../shared/domain/timeline.ts';
import {type Section, section} from '../html/feed.ts';
import {empty, type Html, html, type Mark, withCommands} from '../html/html.ts';

export function eventsPage(
  {entries, runs}: Awaited<ReturnType<typeof readTimeline>>,
  filter: TimelineFilter,
): Section[] {
  const isFiltered = Object.values(filter).some(value => value !== undefined);
  const none = isFiltered
    ? empty('No event matches. Events are kept for 30 days, and the page searches the newest.')
    : empty('No event yet. Events come with the first stream:', 'gleaner run start my-run --streams streams');
  return [
    section('head', html`<h1>Events</h1>${filters(filter, runs)}`),
    section('list', entries.length > 0 ? eventList(foldedLines(entries)) : none),
  ];
}

function filters({run, kind, text}: TimelineFilter, runs: readonly string[]): Html {
  const option = (value: string, chosen: string | undefined) =>
    html`<option value="${value}"${value === chosen ? html` selected` : ''}>${value}</option>`;
  return html`<form class="inline" method="get" action="/events"><label>Run <select name="run"><option value="">all</option>${runs.map(name => option(name, run))}</select></label> <label>Kind <select name="kind"><option value="">all</option>${EVENT_KINDS.map(name => option(name, kind))}</select></label> <label>Text <input name="text" value="${text ?? ''}" size="16"></label> <button>Filter</button></form>`;
}

const MARKS: Record<string, Mark> = {
  ...{PREEMPTED: 'bad', lost: 'bad', failed: 'bad', created: 'wait', recreated: 'wait', started: 'busy'},
  ...{resumed: 'busy', stored: 'off', completed: 'good', deleted: 'off', back: 'good'},
};

/** Shapes of events that end or change work. */
const GLYPHS: Partial<Record<Mark, string>> = {bad: '✕', good: '✓', busy: '◐'};

export function eventList(lines: readonly Line[]): Html {
  if (lines.length === 0) return html`<p class="quiet">No event yet.</p>`;
  let day = '';
  return html`<ol class="events">${lines.map(({at, text}) => {
    const mark = MARKS[verbOf(text)?.verb ?? ''] ?? 'off';
    const isNew = at.slice(0, 10) !== day;
    day = at.slice(0, 10);
    return html`${isNew ? html`<li class="day">${day}</li>` : ''}<li class="${mark}"><time datetime="${at}" title="${timeText(at)} UTC" data-exact>${at.slice(11, 19)}</time><span class="mark" aria-hidden="true">${GLYPHS[mark] ?? ''}</span><span>${withCommands(text)}</span></li>`;
  })}</ol>`;
}
