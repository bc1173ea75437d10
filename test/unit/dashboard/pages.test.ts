/** Pages of documents: what is escaped, what an empty place says, and what a page weighs. */
import assert from 'node:assert/strict';
import {streamGrid} from '../../../dashboard/html/grid.ts';
import {metadataObject} from '../../../shared/domain/names.ts';
import type {Run} from '../../../shared/domain/records/run.ts';
import {NO_UPLOADS} from '../../../shared/domain/run/result.ts';
import type {Store} from '../../../shared/ports/ports.ts';
import {whyWrong} from '../../support/docs/known-commands.ts';
import {someObjects, somePages} from '../../support/machine/dashboard.ts';
import {aConfig, aRun, aStream, at, aWorker, T0} from '../../world/builders.ts';
import {aStore} from '../../world/scenes/put-documents.ts';

const HOSTILE = `<img src=x onerror=alert(1)>"'\u202e&`;
const TPU = 'tpu-us-central1-a-0';
const now = () => T0 + 60_000;

/** Every text that people, workers and Google write is hostile. */
async function hostileStore(): Promise<Store> {
  const lease = {worker: TPU, incarnation: 2, epoch: 1};
  const job = {
    ...{pool: HOSTILE, status: 'failed', epoch: 1, created_at: at(0), updated_at: at(0)},
    ...{error: HOSTILE, code: HOSTILE, metadata: {name: HOSTILE}, result: HOSTILE},
    attempts: [{epoch: 1, worker: HOSTILE, outcome: HOSTILE, error: HOSTILE}],
  };
  return aStore({
    'runs/my-run': aRun({reason: HOSTILE, streams_in_progress: 1, spec: {model: HOSTILE}}),
    'runs/my-run/streams/007': aStream({
      status: 'in_progress',
      lease,
      last_error: HOSTILE,
      rejected_samples: 1,
    }),
    'pools/tpu': aConfig().pool,
    [`workers/${TPU}`]: aWorker({
      name: TPU,
      phase: 'working',
      activity: HOSTILE,
      last_error: HOSTILE,
      work: HOSTILE,
    }),
    'jobs/bad': job,
    'events/x': {kind: HOSTILE, text: HOSTILE, at: at(1), expire_at: at(2), run: 'my-run'},
    [`control/${encodeURIComponent('m')}`]: {message: HOSTILE, outcome: 'applied', at: at(0)},
  });
}

const ADDRESSES = [
  ...['/', '/fleet', '/runs/my-run', '/runs/my-run/streams/007', `/tpus/${TPU}`, '/jobs', '/jobs/bad'],
  ...['/events', '/events?run=my-run', '/documents', '/documents/control/m', '/documents/jobs/bad'],
  `/events?text=${encodeURIComponent(HOSTILE)}`,
];

describe('The pages', () => {
  it('the pages escape every text, and turn none around', async () => {
    const objects = someObjects({
      'activations/my-run/tpu_7/rejects.jsonl': `${JSON.stringify({line: 1, reason: HOSTILE})}\n`,
      [`logs/${TPU}/2.log`]: HOSTILE,
      'jobs/bad/epoch_1/output/000001.txt': HOSTILE,
      [`jobs/bad/epoch_1/artifacts/${HOSTILE}`]: 'x',
    });
    const {get} = somePages(await hostileStore(), now, objects);
    let shown = 0;
    for (const address of [...ADDRESSES, `/${HOSTILE}`, `/runs/${encodeURIComponent(HOSTILE)}`]) {
      const {text, status} = await get(address);
      assert.ok(status < 500, `${address}: ${status} ${text}`);
      assert.doesNotMatch(text, /<img|\u202e/, address);
      shown += text.split('&lt;img src=x').length - 1;
    }
    assert.ok(shown > 15, `${shown} hostile texts are shown`);
    assert.match(
      (await get('/runs/my-run/streams/007')).text,
      /Rejected lines of stream 007.*&lt;img src=x/s,
    );
  });

  it('the pages say in an empty deployment what to do next, with the command', async () => {
    const {get} = somePages(await aStore({}), now);
    for (const [address, command] of [
      ['/', 'gleaner run start'],
      ['/fleet', 'gleaner run start'],
      ['/jobs', 'gleaner jobs submit'],
      ['/events', 'gleaner run start'],
    ] as const) {
      const {status, text} = await get(address);
      assert.equal(status, 200);
      assert.match(text, new RegExp(`<code class="command">[^<]*${command}`), address);
    }
    for (const id of ['__proto__', '__x__', 'a%2Fb', '..%2Fx'])
      for (const address of [
        ...[
          `/runs/${id}`,
          `/runs/${id}/streams/000`,
          `/tpus/${id}`,
          `/jobs/${id}`,
          `/jobs/${id}/artifacts/x`,
        ],
        ...[`/execs/${id}`, `/documents/jobs/${id}`, `/events?run=${id}`],
      ])
        assert.equal((await get(address)).status, 404, address);
    for (const address of ['/documents/jobs?after=__x__', '/events?text=__x__', '/events?kind=__proto__'])
      assert.equal((await get(address)).status, 200, address);
    for (const address of ['/runs/none', '/tpus/tpu-us-central1-a-7', '/jobs/none', '/documents/secrets/x'])
      assert.equal((await get(address)).status, 404, address);
  });

  it('the pages name the wait of a run, and no first step, where it has no TPU', async () => {
    const waits = {kind: 'zone', about: 'us-central1-a', evidence: 'none', since_at: at(0)} as const;
    const store = await aStore({
      'runs/my-run': aRun({waits: {...waits, refusals: 2, next_try_at: at(90)}}),
      'pools/tpu': {
        ...aConfig().pool,
        zones_wait: {'us-central1-a': {...waits, refusals: 2, next_try_at: at(90)}},
      },
    });
    const {text} = await somePages(store, now).get('/fleet');
    assert.match(text, /run my-run waits: us-central1-a gives no TPU now/);
    assert.match(text, /: none; refused 2 times; tried again <time[^>]*>in 30 s<\/time>\.</);
    assert.doesNotMatch(text, /gleaner run start/);
  });

  it('the pages lead to a TPU that is gone, which says how it ended', async () => {
    const gone = aWorker({name: TPU, phase: 'gone'});
    const {get} = somePages(await aStore({'pools/tpu': aConfig().pool, [`workers/${TPU}`]: gone}), now);
    assert.match((await get('/fleet')).text, new RegExp(`1 TPU gone<.*href="/tpus/${TPU}"`));
  });

  it('the pages have commands to copy that exist', async () => {
    const counts = {streams_pending: 0, streams_failed: 1, total_shards: 1};
    const store = await aStore({
      ...Object.fromEntries(
        (['active', 'paused', 'completed'] as const).map(status => [
          `runs/${status}`,
          aRun({run: status, status, ...counts}),
        ]),
      ),
      'pools/tpu': aConfig().pool,
      [`workers/${TPU}`]: aWorker({name: TPU, phase: 'idle'}),
      'jobs/waiting': {pool: 'tpu', status: 'scheduled', created_at: at(0), updated_at: at(0)},
      'jobs/over': {pool: 'tpu', status: 'failed', created_at: at(0), updated_at: at(0)},
    });
    const {get} = somePages(store, now);
    const found = new Set<string>();
    const runs = ['/runs/active', '/runs/paused', '/runs/completed'];
    for (const path of ['/fleet', ...runs, `/tpus/${TPU}`, '/jobs/waiting', '/jobs/over']) {
      const {text} = await get(path);
      for (const [, line = ''] of text.matchAll(/<code class="command">([^<]+)</g)) found.add(line);
    }
    for (const line of found) assert.equal(await whyWrong(line), undefined, line);
    assert.ok(found.size >= 20, [...found].join('\n'));
  });

  it('the pages refuse every method but GET, and robots', async () => {
    const {app} = somePages(await aStore({}), now);
    for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])
      assert.equal((await app.request('/', {method})).status, 405, method);
    const {headers} = await app.request('/');
    assert.match(headers.get('content-security-policy') ?? '', /default-src 'none'/);
    assert.doesNotMatch(headers.get('content-security-policy') ?? '', /unsafe|http|\*/);
    assert.match(headers.get('x-robots-tag') ?? '', /noindex/);
    assert.match(await (await app.request('/robots.txt')).text(), /Disallow: \//);
  });

  for (const [name, of, says] of [
    ['as a curve', {preemptions: 2}, /aria-label="Preemptions: 2 now, 2 at most"/],
    ['as unknown where the run has no count', {preemptions: null}, /Preemptions: unknown/],
  ] as [string, Partial<Run>, RegExp][])
    it(`the pages show the preemptions of a run ${name}`, async () => {
      const history = {step_s: 5, at_s: [0, 9], tokens: [0, 5], usd: [0, 1], leases: [1, 1]};
      const run = aRun({...of, total_tokens: 5, history: {...history, preemptions: [0, 1]}});
      const {text} = await somePages(await aStore({'runs/my-run': run}), now).get('/runs/my-run');
      assert.match(text, says);
    });

  it('the pages show the statistics of the rows: not finite ones, zeros, norms and massive activations by position', async () => {
    const sha256 = 'b'.repeat(64);
    const weights = {weights_sha256: sha256, tokenizer_sha256: sha256, files: {}, unknown_keys: []};
    const summary = {
      ...{total_samples: 4, total_rejected: 0, total_tokens: 8, total_shards: 1, total_truncated: 0},
      ...{total_rows: 800, versions: {}, code: null, upload: NO_UPLOADS},
      stats: {
        'resid_post.0': {
          ...{mean: 0, norm: 1, max_abs: 50, non_finite: 2, zeros: 0.125},
          ...{norm_quantiles: [0.5, 1, 2, 3, 30], max_abs_by_position: [50, 0, 4]},
        },
      },
      model: {name: 'a', revision: null, fingerprint: 'f', ...weights},
    };
    const store = await aStore({
      'runs/my-run': aRun(),
      'runs/my-run/streams/007': aStream({status: 'completed', total_shards: 1}),
    });
    const objects = someObjects({[metadataObject('my-run', '007')]: JSON.stringify(summary)});
    const {text} = await somePages(store, now, objects).get('/runs/my-run');
    assert.match(text, /title="2 of 800 rows">0\.25 %</);
    assert.match(text, /title="0\.50 to 30, median 2\.0">15</);
    assert.match(text, /Share of zeros.*>13 %</);
    assert.match(text, /by position of the token.*2–3<.*warns">50<.*>4\.0</);
  });

  const sample = {
    ...{sample: 4, line: 5, tokens: ['a', ' b'], special: [], rows: null, mask: null},
    left_out: 0,
  };
  for (const [name, text, isShown] of [
    ['of a right form', JSON.stringify({samples: [sample]}), true],
    ['of an unknown key', JSON.stringify({samples: [{...sample, more: 1}]}), false],
    ['of no sample', JSON.stringify({samples: []}), false],
    ['of too many tokens', JSON.stringify({samples: [{...sample, tokens: Array(257).fill('a')}]}), false],
    ['of a megabyte', JSON.stringify({samples: [sample]}) + ' '.repeat(1_000_000), false],
    ['that is no JSON', '{', false],
  ] as const)
    it(`the pages ${isShown ? 'show' : 'leave out'} samples.json ${name}`, async () => {
      const store = await aStore({'runs/my-run': aRun(), 'runs/my-run/streams/007': aStream({epoch: 1})});
      const objects = someObjects({'activations/my-run/tpu_7/samples.json': text});
      const page = await somePages(store, now, objects).get('/runs/my-run');
      assert.equal(page.status, 200);
      assert.equal(/as the model saw them.*Sample 4, line 5/s.test(page.text), isShown);
    });

  it('the pages know a feature only of a run that has it', async () => {
    const run = aRun({spec: {features: [{name: 'scope'}]}, total_shards: 1});
    const {get} = somePages(await aStore({'runs/my-run': run}), now);
    assert.match((await get('/runs/my-run')).text, /action="\/runs\/my-run\/feature".*value="scope"/);
    for (const path of ['other/2/7', 'scope/x/7', 'scope/2/7e3', 'scope/2/1234567890'])
      assert.equal((await get(`/runs/my-run/features/${path}`)).status, 404, path);
    assert.equal((await get('/runs/none/features/scope/2/7')).status, 404);
    assert.match((await get('/runs/my-run/features/scope/2/7')).text, /scope 2 7/);
    assert.equal((await get('/runs/my-run/feature?name=scope&layer=2&id=7')).status, 302);
  });

  it('the pages never show the secrets of hosts', async () => {
    const worker = aWorker({name: TPU});
    const {get} = somePages(await aStore({[`workers/${TPU}`]: worker}), now);
    const {text} = await get(`/documents/workers/${TPU}`);
    assert.match(text, /host_secrets/);
    for (const secret of Object.values(worker.host_secrets)) assert.ok(!text.includes(secret));
  });
});

describe('The grid of streams', () => {
  const statuses = ['completed', 'in_progress', 'pending', 'failed'] as const;
  for (const [name, statusOf] of [
    ['of one status', () => 'completed' as const],
    ['of random statuses', (index: number) => statuses[(index * 7919) % 4] ?? 'pending'],
  ] as const)
    it(`the grid of streams takes at most 250 kB for 10,000 streams ${name}`, () => {
      const streams = Array.from({length: 10_000}, (_, worker_id) => ({
        worker_id,
        status: statusOf(worker_id),
      }));
      assert.ok(String(streamGrid(streams)).length < 250_000);
    });

  it('the grid of streams has a place for each stream, also where numbers are far apart', () => {
    const streams = [3, 999_999_999].map(worker_id => ({worker_id, status: 'pending' as const}));
    const text = String(streamGrid(streams));
    assert.ok(text.length < 2000 && !text.includes('data-streams'), text);
  });
});
