/** The pages in a real browser: live, without a mouse, without JavaScript, on a phone, and while the database is away. */
import assert from 'node:assert/strict';
import {existsSync, readFileSync} from 'node:fs';
import {request} from 'node:http';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {type Browser, type BrowserContext, chromium, type Page} from 'playwright-core';
import {googleConnection} from '../../client/connection/google-connection.ts';
import type {FeatureKnown} from '../../client/views/feature.ts';
import {type Dashboard, serveDashboard} from '../../dashboard/serve.ts';
import {streamId} from '../../shared/domain/names.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {gleaner} from '../support/machine/command.ts';
import {someObjects} from '../support/machine/dashboard.ts';
import {FAST, SPEC, TestHome, texts} from '../support/machine/home.ts';
import {until, WAIT_S} from '../support/machine/until.ts';
import {aConfig, aRun, aStream, aWorker} from '../world/builders.ts';
import {aStore, putDocuments} from '../world/scenes/put-documents.ts';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const TPU = 'tpu-us-central1-a-0';
const HOSTILE = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`;
const wait = {timeout: WAIT_S * 1000};

/** Text that would run, turn or hide something. */
const TOKENS = [
  '<s>',
  '<script>window.hacked=1</script>',
  '"><img src=x onerror="window.hacked=1">',
  '\u202e\u0007\n',
  '',
];
const SAMPLE = {
  ...{sample: 0, line: 1, tokens: TOKENS, special: [0], rows: [1, 3], mask: [0, 1, 1, 0, 0], left_out: 4000},
};
const EXAMPLE = {stream: 0, sample: 3, position: 1, score: 4, kept: {[HOSTILE]: HOSTILE, chat: [HOSTILE]}};
const FEATURE: FeatureKnown = {
  feature: {
    ...{name: HOSTILE, layer: 2, id: 7, active: 9, density: 0.25, at_least: true, max: 4},
    ...{by_stream: {0: 9}, density_by_stream: {0: 0.25}},
    histogram: Array.from({length: 64}, (_, bin) => (bin === 36 ? 9 : 0)),
    examples: [
      {...EXAMPLE, tokens: [...TOKENS, null], values: [0, 4, 2, 0.01, 0, 0]},
      {...EXAMPLE, token_ids: [5, null], values: [1, 0]},
    ],
  },
};

/** Stops the processes of the VM in the middle of the stream, so that the page has the time that it needs. */
async function freezeAtFirstShard(home: TestHome): Promise<void> {
  const shards = join(home.dir, 'buckets', home.ready.bucket, 'activations/my-run/tpu_0');
  await until('the first shard', () => existsSync(shards));
  for (const group of new Set(home.vmGroups())) process.kill(-group, 'SIGSTOP');
}

/** A deployment with hostile texts and a run of 10,000 streams. */
async function largeStore(): Promise<Store> {
  const lease = {worker: TPU, incarnation: 1, epoch: 1};
  const counts = {streams_completed: 6000, streams_in_progress: 1, streams_pending: 3998, streams_failed: 1};
  const history = {
    ...{step_s: 60, at_s: [0, 60, 120, 180], tokens: [0, 10, 500, 900], usd: [0, 0.1, 0.2, 0.3]},
    ...{leases: [0, 1, 1, 1], preemptions: [0, 0, 1, 1]},
  };
  const store = await aStore({
    'runs/large': aRun({run: 'large', ...counts, history, total_tokens: 900}),
    'runs/looked': aRun({run: 'looked', total_shards: 1, spec: {features: [{name: 'scope'}], sites: []}}),
    'runs/looked/streams/000': aStream({
      run: 'looked',
      stream: '000',
      worker_id: 0,
      status: 'completed',
      epoch: 1,
    }),
    'runs/hostile': aRun({run: 'hostile', status: 'failed', reason: HOSTILE}),
    'pools/tpu': aConfig().pool,
    [`workers/${TPU}`]: aWorker({name: TPU, phase: 'working', work: 'large/6000', last_error: HOSTILE}),
    'events/1': {
      kind: 'run',
      text: HOSTILE,
      at: '2026-01-02T03:04:05.000Z',
      expire_at: '2027-01-02T03:04:05.000Z',
    },
    'jobs/hostile': {
      status: 'failed',
      epoch: 1,
      error: HOSTILE,
      metadata: {name: HOSTILE},
      created_at: '2026-01-02T03:04:05.000Z',
    },
  });
  const streams = Array.from({length: 10_000}, (_, index): [string, object] => {
    const status =
      index < 6000 ? 'completed' : index === 6000 ? 'in_progress' : index === 9999 ? 'failed' : 'pending';
    const stream = streamId(index);
    const changes = {
      run: 'large',
      stream,
      worker_id: index,
      status,
      last_error: index === 9999 ? HOSTILE : null,
    };
    return [
      `runs/large/streams/${stream}`,
      aStream({...changes, lease: index === 6000 ? lease : null} as never),
    ];
  });
  await putDocuments(store, Object.fromEntries(streams));
  return store;
}

const ADDRESSES = [
  ...['/', '/fleet', '/runs/large', '/runs/hostile', `/tpus/${TPU}`, '/jobs', '/jobs/hostile', '/events'],
  ...['/documents', '/documents/runs/large', '/runs/large/streams/6000', '/runs/looked'],
  '/runs/looked/features/scope/2/7',
];

describe('The pages in a browser', () => {
  let browser: Browser;
  let dashboard: Dashboard;
  let store: Store;
  let isAway = false;
  let known: FeatureKnown = FEATURE;

  before(async function () {
    if (!existsSync(CHROMIUM)) {
      if (process.env.CI) throw new Error('chromium is missing, and CI needs it');
      console.log('  skipped: chromium is not installed');
      this.skip();
    }
    browser = await chromium.launch({executablePath: CHROMIUM, args: ['--no-sandbox']});
    store = await largeStore();
    const breakable = new Proxy(store, {
      get: (target, name: keyof Store) =>
        isAway && name !== 'close'
          ? () => Promise.reject(new Error('UNAVAILABLE: no route to the database'))
          : target[name].bind(target),
    });
    const connection = {
      ...googleConnection({project: 'p', deployment: 'gleaner', origin: 'the test'}),
      is_google: false,
      storage_endpoint: 'http://127.0.0.1:1',
    };
    const objects = someObjects({
      'activations/looked/tpu_0/samples.json': JSON.stringify({samples: [SAMPLE, SAMPLE]}),
    });
    const cloud = {store: breakable, objects, jobs: 'jobs', connection};
    const features = {read: async () => known, close: () => {}};
    dashboard = await serveDashboard(cloud, 0, someObjects(), features);
  });
  after(async () => {
    await dashboard?.close();
    await store?.close();
    await browser?.close();
  });

  const at = (path: string) => new URL(path, dashboard.url).href;
  async function signedIn(
    options: Parameters<Browser['newContext']>[0] = {},
  ): Promise<{context: BrowserContext; page: Page}> {
    const context = await browser.newContext(options);
    const page = await context.newPage();
    await page.goto(dashboard.url);
    return {context, page};
  }

  it('are closed without the token, and to every other host', async () => {
    assert.equal((await fetch(at('/'))).status, 401);
    assert.equal((await fetch(at('/?token=wrong'))).status, 401);
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const headers = {host: `gleaner.example:${dashboard.port}`};
      const asked = request(dashboard.url, {headers}, response => resolve(response.resume().statusCode));
      asked.once('error', reject).end();
    });
    assert.equal(status, 403);
    assert.equal((await fetch(dashboard.url, {headers: {'sec-fetch-site': 'cross-site'}})).status, 403);
  });

  it('have no serious fault for a screen reader, run no foreign text, and break no policy', async () => {
    const {context, page} = await signedIn();
    const broken: string[] = [];
    page.on('console', message => void (message.type() === 'error' && broken.push(message.text())));
    page.on('pageerror', error => void broken.push(error.message));
    for (const [index, path] of ADDRESSES.entries()) {
      await page.emulateMedia({colorScheme: index % 2 === 0 ? 'light' : 'dark'});
      await page.goto(at(path));
      assert.deepEqual(await faultsOf(page), [], path);
    }
    assert.equal(await page.evaluate(() => (globalThis as {hacked?: number}).hacked), undefined);
    assert.deepEqual(broken, []);
    await context.close();
  });

  it('fit a phone of 360 pixels', async () => {
    const {context, page} = await signedIn({viewport: {width: 360, height: 740}});
    for (const path of ADDRESSES) {
      await page.goto(at(path));
      const wide = await page.evaluate<string[]>(TOO_WIDE);
      assert.deepEqual(wide, [], path);
    }
    await context.close();
  });

  it('show 10,000 streams in less than 500 kB, each by its number', async () => {
    const {context, page} = await signedIn();
    const response = await page.goto(at('/runs/large'));
    const size = (await response?.body())?.length ?? 0;
    assert.ok(size < 500_000, `${size} bytes`);
    const grid = page.locator('svg.grid[data-streams]');
    const {width, height} = (await grid.boundingBox()) ?? assert.fail('no grid');
    await grid.click({position: {x: width - 2, y: height - 2}});
    await page.waitForURL('**/runs/large/streams/9999');
    await page.getByText('window.hacked=1').first().waitFor(wait);
    await context.close();
  });

  it('show samples as the model saw them, and lead to a feature that appears when the run is read', async () => {
    const {context, page} = await signedIn();
    await page.goto(at('/runs/looked'));
    const sample = page.locator('#samples .tokens').first();
    const text = await sample.innerText();
    for (const part of [...TOKENS.slice(0, 3), '\ufffd\ufffd↵', '▫', '4,000 tokens'])
      assert.ok(text.includes(part), `${part} in ${text}`);
    assert.deepEqual(await sample.locator('.chosen').allInnerTexts(), [TOKENS[1], '\ufffd\ufffd↵\n']);
    assert.equal(await sample.locator('.masked').count(), 2);
    known = {text: HOSTILE, isUnread: true};
    await page.getByLabel('layer').fill('2');
    await page.getByLabel('id').fill('7');
    await page.getByRole('button', {name: 'Show'}).last().click();
    await page.waitForURL('**/runs/looked/features/scope/2/7');
    await page.getByText(HOSTILE).waitFor(wait);
    await page.getByRole('link', {name: 'Read it'}).click();
    await page.waitForURL('**/runs/looked/features/scope/2/7?read=1');
    known = FEATURE;
    await page.locator('.strongest').first().waitFor(wait);
    assert.deepEqual(await page.locator('.strongest').allInnerTexts(), [TOKENS[1], '5']);
    assert.equal(await page.locator('#examples .token[title]').count(), 4);
    assert.equal(await page.evaluate(() => (globalThis as {hacked?: number}).hacked), undefined);
    await context.close();
  });

  it('need neither a mouse nor JavaScript', async () => {
    const {context, page} = await signedIn({javaScriptEnabled: false});
    await page.keyboard.press('Tab');
    assert.equal(await page.locator(':focus').textContent(), 'Skip to the page');
    for (let n = 0; n < 3; n++) await page.keyboard.press('Tab');
    assert.equal(await page.locator(':focus').textContent(), 'Fleet');
    await page.keyboard.press('Enter');
    await page.waitForURL('**/fleet');
    await page.getByRole('link', {name: '0 working'}).focus();
    await page.keyboard.press('Enter');
    await page.waitForURL(`**/tpus/${TPU}`);
    await page.goto(at('/events?kind=job'));
    await page.getByText('No event matches').waitFor(wait);
    await page.selectOption('select[name=kind]', 'run');
    await page.getByRole('button', {name: 'Filter'}).focus();
    await page.keyboard.press('Enter');
    await page.locator('.events li').first().waitFor(wait);
    await context.close();
  });

  it('keep the last known state with its age while the database is away, and go on by themselves', async () => {
    const {context, page} = await signedIn();
    await page.goto(at('/fleet'));
    await page.evaluate(() => Object.assign(globalThis, {isFirst: true}));
    isAway = true;
    await page.getByText('the database does not answer (UNAVAILABLE').waitFor(wait);
    assert.equal(await page.locator('.chip').count(), 1);
    isAway = false;
    await page.locator('.fresh:not(.stale)').waitFor(wait);
    const worker = aWorker({name: TPU, phase: 'deleting', last_death: 'it was preempted'});
    await putDocuments(store, {[`workers/${TPU}`]: {...worker, updated_at: new Date().toISOString()}});
    await page.locator('.chip.bad').waitFor(wait);
    assert.equal(await page.evaluate(() => (globalThis as {isFirst?: boolean}).isFirst), true);
    await context.close();
  });

  describe('of a local cloud', () => {
    let home: TestHome;
    before(async () => {
      home = await TestHome.start(1, FAST);
    });
    after(() => home?.remove());

    it('show a run from the drop to its end, through a preemption, without a reload', async () => {
      const page = await browser.newPage();
      await page.goto(home.ready.dashboard);
      await page.getByText('No runs yet').waitFor(wait);
      await page.evaluate(() => Object.assign(globalThis, {isFirst: true}));
      await home.drop('datasets/my-run/run.json', SPEC);
      await home.drop('datasets/my-run/stream_000.jsonl', texts(1200, 'a'));
      const frozen = freezeAtFirstShard(home);
      await page.getByRole('link', {name: 'my-run'}).waitFor(wait);
      assert.equal(await page.evaluate(() => (globalThis as {isFirst?: boolean}).isFirst), true);
      await page.getByRole('link', {name: 'my-run'}).click();
      await page.evaluate(() => Object.assign(globalThis, {isFirst: true}));
      await frozen;
      await page
        .getByText(/^Shards? [\d-]+ of my-run\/000 stored$/)
        .first()
        .waitFor(wait);
      await home.fault('preempt', TPU);
      await page
        .getByText(/is lost: it was preempted/)
        .first()
        .waitFor(wait);
      await page.locator('h1 .state.good').waitFor(wait);
      await page.getByText('Statistics of run my-run').waitFor(wait);
      assert.equal(await page.evaluate(() => (globalThis as {isFirst?: boolean}).isFirst), true);
      await page.goto(new URL(`/tpus/${TPU}/1`, home.ready.dashboard).href);
      await page.getByText('It was preempted').waitFor(wait);
      assert.ok((await page.locator('.waterfall tr').count()) > 2);
      await page.close();
    });

    it('has a report that asks for nothing, fits a phone and has no serious fault for a screen reader', async () => {
      const file = join(home.dir, 'report.html');
      await gleaner(['run', 'report', 'my-run', '--dir', home.dir, '-o', file]);
      const page = await browser.newPage({viewport: {width: 360, height: 740}, colorScheme: 'dark'});
      const asked: string[] = [];
      page.on('request', request => void asked.push(request.url()));
      await page.goto(`file://${file}`);
      await page.getByText('preempted or taken by Google').waitFor(wait);
      assert.deepEqual(asked, [`file://${file}`]);
      assert.deepEqual(await page.evaluate<string[]>(TOO_WIDE), []);
      assert.deepEqual(await faultsOf(page), []);
      await page.close();
    });
  });
});

/** Elements that reach beyond the window, and are not within a box that scrolls. */
const TOO_WIDE = `[...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll, .log') && each.getBoundingClientRect().right > innerWidth + 0.5).map(each => each.outerHTML.slice(0, 200)).concat(document.documentElement.scrollWidth > innerWidth ? ['the page'] : [])`;

/** Serious faults that axe-core finds. */
async function faultsOf(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const {violations} = await page.evaluate(() => (globalThis as unknown as {axe: Axe}).axe.run());
  return violations
    .filter(({impact}) => impact === 'serious' || impact === 'critical')
    .map(({id, nodes}) => `${id} ${nodes[0]?.html}`);
}

type Axe = {run: () => Promise<{violations: {id: string; impact: string; nodes: {html: string}[]}[]}>};
