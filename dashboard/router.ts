/** The router of the page. Every address is read with GET, and changes nothing. */
import {hash} from 'node:crypto';
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {fileURLToPath} from 'node:url';
import {type Context, Hono, type MiddlewareHandler} from 'hono';
import {streamSSE} from 'hono/streaming';
import type {Cloud} from '../client/cloud/cloud.ts';
import {CliError} from '../client/text/errors.ts';
import {readArtifact} from '../client/views/attempt-files.ts';
import {epochOf, MAX_ARTIFACT_BYTES} from '../client/views/jobs.ts';
import {isRunId, JOB, paths, streamId} from '../shared/domain/names.ts';
import {strict} from './guard.ts';
import {
  Feed,
  type FeedOptions,
  type LivePage,
  PageError,
  type Section,
  type Shown,
  section,
} from './html/feed.ts';
import {address, command, html} from './html/html.ts';
import {document, freshness} from './html/layout.ts';
import {PAGES, type Source} from './pages/index.ts';

/** `guard`: who may read. `name`: the name of the cloud on every page. */
type RouterOptions = {source: Source; feed: FeedOptions; guard: MiddlewareHandler; name: string};

const NAME_CHARS = 400;
/** A comment keeps a silent connection open. */
const ALIVE_MS = 25_000;

export function dashboardRouter({source, feed: feedOptions, guard, name}: RouterOptions): {
  app: Hono;
  feed: Feed;
} {
  const app = new Hono();
  const feed = new Feed(feedOptions);
  const {files, version} = readStaticFiles();
  const frame = (c: Context, title: string) => ({title, path: c.req.path, cloud: name, version});

  app.use(strict());
  app.get('/robots.txt', c => c.text('User-agent: *\nDisallow: /\n'));
  app.get('/static/:name', c => {
    const file = files.get(c.req.param('name'));
    if (!file) return c.text('There is no such file\n', 404);
    return c.body(file.body, 200, {
      'content-type': file.type,
      'cache-control': 'max-age=31536000, immutable',
    });
  });
  app.use(guard);

  for (const {path, title, read} of PAGES) {
    const liveOf = (c: Context, prefix: string): LivePage => {
      const url = new URL(c.req.url);
      const query = url.searchParams;
      const params = c.req.param() as Record<string, string>;
      return {
        key: `${url.pathname.slice(prefix.length)}?${query}`,
        read: () => read(source, {params, query}).catch(asPageError),
      };
    };
    app.get(path, async c => {
      const page = liveOf(c, '');
      const shown = await feed.show(page);
      return c.html(
        document(frame(c, title(c.req.param())), sectionsOf(shown, feedOptions.now()), `/live${page.key}`),
      );
    });
    app.get(path === '/' ? '/live/' : `/live${path}`, c =>
      streamPage(c, feed, liveOf(c, '/live'), feedOptions.now),
    );
  }

  app.get('/runs/:run/stream', c => {
    const run = c.req.param('run');
    const number = c.req.query('number') ?? '';
    if (!isRunId(run) || !/^\d{1,9}$/.test(number))
      throw new PageError(`There is no stream "${number}"`, 404);
    return c.redirect(address('runs', run, 'streams', streamId(Number(number))), 302);
  });
  app.get('/runs/:run/feature', c => {
    const {name = '', layer = '', id = ''} = c.req.query();
    return c.redirect(address('runs', c.req.param('run'), 'features', name, layer, id), 302);
  });
  app.get('/jobs/:job/artifacts/:name{.+}', c => artifact(c, source.cloud));

  app.notFound(c =>
    c.html(problem(frame(c, 'Not found'), `Nothing is at ${c.req.path.slice(0, NAME_CHARS)}`), 404),
  );
  app.onError((error, c) => {
    const [text, status] =
      error instanceof PageError ? [error.message, error.status] : [String(error.message), 503 as const];
    return c.html(
      problem(frame(c, status === 404 ? 'Not found' : 'Away'), text.slice(0, NAME_CHARS), status),
      status,
    );
  });
  return {app, feed};
}

/** A view throws `CliError` for a name that does not exist. */
function asPageError(error: Error): never {
  throw error instanceof CliError ? new PageError(error.message, 404) : error;
}

function sectionsOf(shown: Shown, now: number): Section[] {
  return [freshness(shown, now), ...shown.sections];
}

/** A page that only says something. */
function problem(frame: Parameters<typeof document>[0], text: string, status: number = 404): string {
  const title = status === 404 ? 'Not found' : 'The database does not answer';
  const more =
    status === 404
      ? html`<p><a href="/">Overview</a></p>`
      : html`<p class="quiet">No state is known yet. The page tries again when you load it. ${command('gleaner doctor')} checks a deployment.</p>`;
  return document(frame, [section('head', html`<h1>${title}</h1><p class="lead">${text}</p>${more}`)], null);
}

/** Sends the sections of a page that have changed, until the browser leaves. */
function streamPage(c: Context, feed: Feed, page: LivePage, now: () => number): Response {
  return streamSSE(c, async stream => {
    const sent = new Map<string, string>();
    let queue = Promise.resolve();
    const send = (shown: Shown) => {
      // A page that was never read leaves an open browser as it is.
      if (shown.sections.length === 0) return;
      const changed = sectionsOf(shown, now()).filter(({id, html}) => sent.get(id) !== unaged(html));
      const all = shown.sections.map(({id}) => id);
      for (const {id, html} of changed) sent.set(id, unaged(html));
      const data = JSON.stringify({at: new Date(shown.at_ms).toISOString(), all, changed});
      queue = queue.then(() => stream.writeSSE({event: 'sections', data})).catch(() => {});
    };
    const unsubscribe = feed.subscribe(page, send);
    const alive = setInterval(() => {
      queue = queue
        .then(() => stream.writeln(':'))
        .then(() => {})
        .catch(() => {});
    }, ALIVE_MS);
    await new Promise<void>(resolve => stream.onAbort(resolve));
    clearInterval(alive);
    unsubscribe();
  });
}

/** HTML without the words of ages, which the browser counts on by itself. */
export function unaged(text: string): string {
  return text.replace(/(<time [^>]*>)[^<]*(?=<\/time>)/g, '$1');
}

/** A file of the newest attempt of a job, as a download: a browser shows none of it. */
async function artifact(c: Context, {store, objects, jobs}: Cloud): Promise<Response> {
  const {job = '', name = ''} = c.req.param();
  const found = JOB.test(job) ? await store.get(paths.job(jobs, job)) : undefined;
  const epoch = epochOf(found ?? {});
  const bytes = found && (await readArtifact(objects, job, epoch, name, MAX_ARTIFACT_BYTES));
  if (!bytes) throw new PageError(`There is no file ${name} of job ${job}`, 404);
  const file = name.slice(name.lastIndexOf('/') + 1);
  return c.body(Buffer.from(bytes), 200, {
    'content-type': 'application/octet-stream',
    'content-disposition': `attachment; filename*=UTF-8''${encodeURIComponent(file)}`,
  });
}

const own = (name: string) => fileURLToPath(new URL(`./static/${name}`, import.meta.url));
const resolve = createRequire(import.meta.url).resolve;

const FILES: Record<string, {path: string; type: string}> = {
  'style.css': {path: own('style.css'), type: 'text/css; charset=utf-8'},
  'live.js': {path: own('live.js'), type: 'text/javascript; charset=utf-8'},
  'icon.svg': {path: own('icon.svg'), type: 'image/svg+xml'},
  'idiomorph.js': {path: resolve('idiomorph/dist/idiomorph.min.js'), type: 'text/javascript; charset=utf-8'},
};

type StaticFile = {body: string; type: string};

/** The files by their names, and a hash of all of them. */
function readStaticFiles(): {files: Map<string, StaticFile>; version: string} {
  const files = new Map(
    Object.entries(FILES).map(([name, {path, type}]) => [name, {body: readFileSync(path, 'utf8'), type}]),
  );
  const version = hash('sha256', [...files.values()].map(({body}) => body).join('\0')).slice(0, 8);
  return {files, version};
}
