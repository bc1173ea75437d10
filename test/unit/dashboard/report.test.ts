/** Reports: files that load nothing, escape every text, and say what a run holds. */
import assert from 'node:assert/strict';
import {hash} from 'node:crypto';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {compareSides} from '../../../client/views/comparison.ts';
import {type Report, readReport} from '../../../client/views/report.ts';
import {comparisonReport} from '../../../dashboard/report/comparison-report.ts';
import {type Made, runReport} from '../../../dashboard/report/run-report.ts';
import {attemptDocument} from '../../../shared/domain/worker/attempt.ts';
import {someObjects} from '../../support/machine/dashboard.ts';
import {aRun, aStream, at, aWorker} from '../../world/builders.ts';
import {aStore} from '../../world/scenes/put-documents.ts';

const HOSTILE = `</style><script src=x>alert(1)</script><img src=x>"'\u202e&{{`;
const TPU = 'tpu-us-central1-a-0';
const MADE: Made = {at: at(0), bucket: 'bucket', project: 'a-project', verified: null, compared: null};

const COMPARED = {
  ...{at: at(0), samples: 2, rows: 40, versions: {[HOSTILE]: HOSTILE}},
  drift: {
    'resid_post.4': {
      ...{relative_error: 0.00412, cosine: 0.999991},
      worst: {stream: '007', sample: 3, position: 11, relative_error: 0.031},
    },
  },
};

const ATTEMPT = attemptDocument.parse({
  ...{worker: TPU, incarnation: 1, cause: HOSTILE, cause_kind: 'taken'},
  ...{ready_at: at(0), ended_at: at(600), gone_at: at(660), expire_at: at(90 * 86_400)},
  ...{costs: {'my-run': 1.5, other: 7}, cost_usd: 8.5},
  phases: {extract: {seconds: 500, usd: 1.25}, lost: {seconds: 100, usd: 0.25}},
});

const rejects = (...reasons: string[]) =>
  reasons.map((reason, index) => JSON.stringify({line: index + 1, reason})).join('\n');

async function aReport(): Promise<Report> {
  const run = aRun({
    ...{status: 'completed', reason: HOSTILE, spec: {model: HOSTILE, layers: '4-7', sites: ['resid_post']}},
    ...{streams_completed: 1, streams_pending: 0, rejected_samples: 3, total_samples_processed: 5},
    ...{total_tokens: 50, cost_usd: 2},
    preemptions: 3,
    history: {
      ...{step_s: 5, at_s: [0, 300, 660], tokens: [0, 20, 50], usd: [0, 1, 2], leases: [1, 1, 0]},
      preemptions: [0, 1, 2],
    },
  });
  const store = await aStore({
    'runs/my-run': run,
    'runs/my-run/streams/007': aStream({
      status: 'completed',
      epoch: 1,
      rejected_samples: 3,
      last_error: HOSTILE,
    }),
    [`workers/${TPU}`]: aWorker({name: TPU}),
    [`workers/${TPU}/attempts/000001`]: ATTEMPT,
    [`workers/${TPU}/attempts/000002`]: {...ATTEMPT, incarnation: 2, costs: {other: 1}},
  });
  const objects = someObjects({
    'activations/my-run/tpu_7/rejects.jsonl': rejects('has 71 tokens', HOSTILE, 'has 9 tokens'),
    'activations/my-run/tpu_7/samples.json': JSON.stringify({
      samples: [{sample: 0, line: 1, tokens: [HOSTILE], special: [], rows: [0], mask: null, left_out: 0}],
    }),
  });
  const connection = {deployment: 'gleaner', project: 'p', is_google: true, stopped: async () => undefined};
  const cloud = {store, objects, jobs: 'jobs', dir: undefined, connection} as unknown as Cloud;
  return (await readReport(cloud, 'my-run')) ?? assert.fail('there is no run');
}

/** The file asks for nothing, and its policy allows its own style alone. */
function assertAlone(text: string): void {
  const [, policy] = /http-equiv="Content-Security-Policy" content="([^"]+)"/.exec(text) ?? [];
  const [, style = ''] = /<style>([\s\S]*?)<\/style>/.exec(text) ?? [];
  const digest = hash('sha256', style, 'base64');
  assert.equal(
    policy,
    `default-src 'none'; style-src 'sha256-${digest}'; base-uri 'none'; form-action 'none'`,
  );
  assert.doesNotMatch(style, /url\(|@import/);
  assert.doesNotMatch(text, /<(script|img|link|iframe|object|form|a)\b|\u202e/);
  assert.doesNotMatch(text, /<[a-z][^<>]*\s(src|href|style|on\w+)=/);
}

describe('The report of a run', () => {
  it('the report of a run loads nothing, and escapes every text', async () => {
    const text = runReport(await aReport(), {...MADE, compared: COMPARED});
    assertAlone(text);
    assert.match(text, /token chosen">&lt;\/style&gt;/);
    assert.match(text, /resid_post\.4.*4\.1e-3.*sample 3, token 11/);
    assert.ok(text.split('&lt;script').length > 4, 'the hostile texts are shown');
  });

  it('the report of a run adds up reasons that differ in their numbers, and the lives that the run has paid for', async () => {
    const {reasons, lives} = await aReport();
    assert.deepEqual(
      reasons.most.map(({reason, samples, first}) => [reason, samples, first]),
      [
        ['has … tokens', 2, {stream: '007', line: 1}],
        [HOSTILE, 1, {stream: '007', line: 2}],
      ],
    );
    assert.deepEqual(
      lives.map(({kind, seconds, usd}) => [kind, seconds, usd]),
      [['taken', 660, 1.5]],
    );
  });

  it('the report of a run has lines that read what it stores', async () => {
    const report = await aReport();
    const textOf = (spec: object) => {
      Object.assign(report.page.state.run, {spec: {sites: [], ...spec}});
      return runReport(report, MADE).replaceAll('&quot;', '"');
    };
    const probe = textOf({project: [{name: 'probe', weights: HOSTILE, layers: [9]}], layers: '4-7'});
    assert.match(probe, /run\.layer\(9, "probe"\): {2}# \[rows, width\].*--layer 9 --site probe --output/s);
    const several = textOf({sites: ['mlp_out', 'resid_post'], layers: [2]});
    assert.match(several, /run\.layer\(2, "mlp_out"\).*--layer 2 --site mlp_out --output layer-2/s);
    const moments = textOf({moments: {sites: ['resid_post'], layers: '2-3'}, layers: 'all'});
    assert.match(moments, /run\.moments\(2\)/);
    assert.doesNotMatch(moments, /run\.layer|run export/);
  });

  it('the report of a run shows the preemptions of the run as a number and as a curve', async () => {
    const text = runReport(await aReport(), MADE);
    assert.match(text, /3 preemptions/);
    assert.match(text, /aria-label="Preemptions: 3 now, 3 at most"/);
  });

  it('the report of a run says whether the shards were read again for it', async () => {
    const report = await aReport();
    const text = runReport(report, MADE);
    assert.match(text, /gleaner run report my-run --verify/);
    assert.doesNotMatch(text, /<a\b|The document of the run/, 'no link leads out of the file');
    const counts = {samples: 8, stored_once: 4, missing: 1, doubled: 0, different: 0, rejected: 3, shards: 1};
    const verified = {
      ...{...counts, run: 'my-run', ok: false, digest: null, anchored: false, truncated: 0, bytes: 1},
      ...{tokens: 50, streams: []},
      problems: ['shard 2 is gone'],
    };
    const bad = runReport(report, {...MADE, verified});
    assert.match(bad, /not verified/);
    assert.match(bad, /shard 2 is gone/);
  });
});

describe('The comparison of two runs', () => {
  it('the comparison of two runs loads nothing, escapes every text, and says whether the runs hold the same', () => {
    const side = (norm: number) => ({
      run: aRun({run: 'one', status: 'completed', spec: {model: HOSTILE + norm}}),
      result: null,
      shards: new Map<string, string>(),
    });
    const [a, b] = [side(1), side(2)];
    const text = comparisonReport(compareSides(a, b), [a, b], at(0));
    assertAlone(text);
    assert.match(text, /different/);
    assert.match(text, /&lt;script/);
  });
});
