import assert from 'node:assert/strict';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {createServer} from 'node:http';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {gleaner} from '../support/machine/command.ts';
import {TestHome, texts} from '../support/machine/home.ts';
import {listen} from '../support/machine/listen.ts';

type Span = {estimate: number; low: number; high: number | null};
type Report = {
  exact: boolean;
  sample: {bytes: number};
  totals: Record<'samples' | 'tokens' | 'shards', Span>;
  stored_bytes: Span;
  tokens_per_second: {estimate: number; limit: string};
  usd: {spot: Span; on_demand: Span};
  program: object | null;
  warnings: string[];
};

describe('gleaner estimate of a run @long', () => {
  const SPEC = {shard_size_gb: 0.002, layers: '0-1', keep: []};
  const streams = [0, 1].map(index => texts(600 + 150 * index, `e${index}`, 10 + 8 * index));
  let home: TestHome;
  before(async () => {
    home = await TestHome.start();
    for (const [index, text] of streams.entries())
      await home.drop(`datasets/soon/stream_00${index}.jsonl`, text);
    await home.publish({action: 'pause', run: 'soon'});
  });
  after(() => home.remove());

  async function ask(...args: string[]): Promise<Report> {
    const {code, stdout, stderr} = await gleaner(['estimate', ...args, '--json', '--dir', home.dir]);
    assert.equal(code, 0, stderr);
    return JSON.parse(stdout);
  }

  function isNear(guess: Span, true_value: number, share: number, what: string): void {
    const off = Math.abs(guess.estimate / true_value - 1);
    assert.ok(off <= share, `${what}: ${JSON.stringify(guess)}, and it is ${true_value}`);
  }

  it('equals the tokens of a run when it reads every byte, and is within a few percent from a sample', async () => {
    const spec = join(home.dir, 'spec.json');
    writeFileSync(spec, JSON.stringify(SPEC));
    const whole = await ask('soon', '--spec', spec);
    const part = await ask('soon', '--spec', spec, '--sample-bytes', '20000');
    assert.ok(whole.exact && !part.exact && part.sample.bytes < 25_000);

    await home.drop('datasets/real/run.json', JSON.stringify(SPEC));
    for (const [index, text] of streams.entries())
      await home.drop(`datasets/real/stream_00${index}.jsonl`, text);
    const {run} = (await home.runEnds('real')) ?? assert.fail();
    assert.equal(run.status, 'completed', run.reason ?? '');
    assert.equal(whole.totals.tokens.estimate, run.total_tokens);
    assert.equal(whole.totals.samples.estimate, run.total_samples_processed);
    assert.equal(whole.totals.shards.estimate, run.total_shards);
    isNear(whole.stored_bytes, run.total_bytes, 0.03, 'bytes of the whole');
    isNear(part.totals.tokens, run.total_tokens, 0.05, 'tokens of a sample');
    isNear(part.totals.shards, run.total_shards, 0.1, 'shards of a sample');
    isNear(part.stored_bytes, run.total_bytes, 0.06, 'bytes of a sample');

    const tpus = (await home.read(store => store.query('workers'))).length;
    const like = await ask('soon', '--spec', spec, '--like', 'real', '--workers', `${tpus}`);
    assert.match(like.tokens_per_second.limit, /the speed of run real/);
    assert.ok(like.usd.on_demand.estimate > like.usd.spot.estimate);
    const {stdout} = await gleaner(['status', '--json', '--dir', home.dir]);
    const found = JSON.parse(stdout).find((each: {run: string}) => each.run === 'real');
    assert.equal(found.usd_per_million_tokens, (found.cost_usd / found.total_tokens) * 1e6);
    isNear(like.usd.spot, found.cost_usd, 1e-6, 'dollars of a run like one with the same streams');
    const args = ['estimate', 'soon', '--like', 'real', '--accelerator', 'v5litepod-8', '--dir', home.dir];
    const {code, stderr} = await gleaner(args);
    assert.equal(code, 1);
    assert.match(stderr, /Run "real" used v5litepod-1, and not v5litepod-8/);
  });
});

describe('gleaner estimate', () => {
  const wrong: {name: string; args: string[]; says: RegExp}[] = [
    {name: 'a rate of zero', args: ['soon', '--tokens-per-second', '0'], says: /a number above 0/},
    {
      name: 'a rate together with --like',
      args: ['soon', '--like', 'real', '--tokens-per-second', '9'],
      says: /cannot be used with/,
    },
    {name: 'an empty model', args: ['soon', '--model', ''], says: /--model.* a text that is not empty/},
    {
      name: 'a region in place of a zone',
      args: ['soon', '--zone', 'europe-west4'],
      says: /a zone such as us-central1-a/,
    },
  ];
  for (const {name, args, says} of wrong)
    it(`refuses ${name} in one sentence`, async () => {
      const {code, stderr} = await gleaner(['estimate', ...args]);
      assert.equal(code, 2, stderr);
      assert.match(stderr, says);
    });
});

describe('gleaner estimate with a model of a hub', () => {
  it('shows each wait for the hub on stderr, before the reason of its failure', async () => {
    const cwd = mkdtempSync(join(tmpdir(), 'gleaner-e2e-'));
    const statuses = [503];
    const hub = createServer((_, response) => response.writeHead(statuses.shift() ?? 401).end());
    try {
      const host = await listen(hub);
      writeFileSync(join(cwd, 'a.jsonl'), texts(3, 'h'));
      const args = ['estimate', 'a.jsonl', '--model', 'an-org/a-model'];
      const {code, stdout, stderr} = await gleaner(args, {cwd, env: {HF_ENDPOINT: `http://${host}`}});
      assert.deepEqual([code, stdout], [1, ''], stderr);
      const lines = stderr.trim().split('\n');
      assert.ok(lines.includes(`Waiting for ${host}: it answers 503, try 1`), stderr);
      assert.match(lines.at(-1) ?? '', /Failed to find the model an-org\/a-model \(401\)/);
    } finally {
      hub.close();
      rmSync(cwd, {recursive: true});
    }
  });
});
