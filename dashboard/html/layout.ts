/** The frame of every page. */

import {raw} from 'hono/html';
import type {Section, Shown} from './feed.ts';
import {type Html, html, time} from './html.ts';

export type Frame = {
  title: string;
  /** Address of the page: the navigation marks its part. */
  path: string;
  cloud: string;
  /** Hashes of the static files, so that a new release is not read from a cache. */
  version: string;
};

const PARTS: [href: string, name: string][] = [
  ['/', 'Overview'],
  ['/fleet', 'Fleet'],
  ['/jobs', 'Jobs'],
  ['/events', 'Events'],
  ['/documents', 'Documents'],
];

/** Pages below a part of the navigation. */
const WITHIN: Record<string, string> = {runs: '/', tpus: '/fleet', execs: '/jobs'};

function partOf(path: string): string {
  const first = path.split(/[/?]/)[1] ?? '';
  return WITHIN[first] ?? `/${first}`;
}

/** A whole page. `shown`: its sections, or none for a page that only says something. */
export function document(frame: Frame, sections: readonly Section[], live: string | null): string {
  const here = partOf(frame.path);
  const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex, nofollow">
<meta name="color-scheme" content="light dark">
<title>${frame.title} · Gleaner</title>
<link rel="icon" href="/static/icon.svg?${frame.version}" type="image/svg+xml">
<link rel="stylesheet" href="/static/style.css?${frame.version}">
<script defer src="/static/idiomorph.js?${frame.version}"></script>
<script defer src="/static/live.js?${frame.version}"></script>
</head>
<body${live === null ? '' : html` data-live="${live}"`}>
<a class="skip" href="#main">Skip to the page</a>
<header>
<a class="brand" href="/">Gleaner</a>
<nav aria-label="Pages">${PARTS.map(
    ([href, name]) => html`<a href="${href}"${href === here ? html` aria-current="page"` : ''}>${name}</a>`,
  )}</nav>
<span class="cloud" title="The cloud of this page">${frame.cloud}</span>
</header>
<main id="main" tabindex="-1">
${sections.map(({id, html: body}) => html`<section id="${id}">${raw(body)}</section>\n`)}</main>
</body>
</html>
`;
  return String(page);
}

export function freshness({at_ms, problem}: Omit<Shown, 'sections'>, now: number): Section {
  const at = time(new Date(at_ms).toISOString(), now);
  const body: Html =
    problem === null
      ? html`<p class="fresh"><span class="dot" aria-hidden="true"></span>as of ${at}</p>`
      : html`<p class="fresh stale" role="alert"><span aria-hidden="true">▲</span> last known state, as of ${at}: the database does not answer (${problem})</p>`;
  return {id: 'fresh', html: String(body)};
}
