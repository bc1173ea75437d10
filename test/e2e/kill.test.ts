import assert from 'node:assert/strict';
import type {RunState} from '../../client/views/run-state.ts';
import {FAST, processes, SPEC, signal, TestHome, texts} from '../support/machine/home.ts';
import {seeded} from '../world/clock.ts';

/**
 * Without a memory of losses: the third early loss of a zone, which a slow machine may show, would stop its creates for 10 minutes. A kill
 * loses requests and boots, so their limits are short too.
 */
const SETTINGS = {
  ...FAST,
  ...{GLEANER_CHURN_WINDOW_S: '1', GLEANER_CREATE_S: '60', GLEANER_BOOT_S: '60', GLEANER_ASK_AGAIN_S: '5'},
};

const KILLS = Number(process.env.GLEANER_KILLS ?? 3);

/** Moments for a kill. `stored`: shards at the kill before. */
const MOMENTS: [string, (view: RunState, stored: number) => boolean][] = [
  ['the boot of a VM', ({workers}) => workers.some(({phase}) => phase !== 'creating')],
  ['a worker at work', ({workers}) => workers.some(({phase}) => phase === 'working')],
  ['a further shard', (view, stored) => shardsOf(view) > stored],
];

function shardsOf({streams}: RunState): number {
  return streams.reduce((sum, {total_shards}) => sum + total_shards, 0);
}

/** Shards and rejects of a run: names without the run, with checksum and size of the bytes. */
async function shards(home: TestHome, run: string): Promise<Record<string, string>> {
  const objects = await home.objects.list(`activations/${run}/tpu_`);
  // metadata.json contains the name of the run and differs between two runs.
  const results = objects.filter(({name}) => !name.endsWith('metadata.json'));
  return Object.fromEntries(
    results.map(({name, crc32c, size_bytes}) => [name.replace(run, 'RUN'), `${crc32c} ${size_bytes}`]),
  );
}

async function dropRun(home: TestHome, run: string): Promise<void> {
  await home.drop(`datasets/${run}/run.json`, SPEC);
  await home.drop(`datasets/${run}/stream_000.jsonl`, texts(280, 's'));
}

describe('A run on a local cloud', () => {
  let home: TestHome;
  before(async () => {
    // Simulated worlds lose workers of fleets. Here each kill costs the boot of a VM.
    home = await TestHome.start(1, SETTINGS);
  });
  after(() => home.remove());

  it(`has the bytes of an undisturbed run after ${KILLS} kills of workers, function host and cloud`, async () => {
    await dropRun(home, 'calm');
    await home.runEnds('calm');
    const undisturbed = await shards(home, 'calm');
    assert.ok(Object.keys(undisturbed).length > 8, 'the stream has several shards');

    await dropRun(home, 'wild');
    const victims = ['worker', 'functions', 'cloud', 'worker'] as const;
    const random = seeded(12345);
    const killed = {worker: 0, functions: 0, cloud: 0};
    let stored = 0;
    for (let kill = 0; kill < KILLS; kill++) {
      const [moment, isNow] = MOMENTS[Math.floor(random() * MOMENTS.length)] ?? assert.fail();
      const isOver = ({run}: RunState) => run.status !== 'active';
      const view = await home.until(
        `${moment}, or the end of the run`,
        () => home.view('wild'),
        found => found !== undefined && (isOver(found) || isNow(found, stored)),
      );
      stored = shardsOf(view);
      const victim = victims[kill % victims.length] ?? 'worker';
      if (victim === 'cloud') {
        await killCloud();
        await home.up();
        killed.cloud++;
      } else if (victim === 'functions') {
        const host = processes().find(({ppid, args}) => ppid === home.pid && args.includes('function-host'));
        if (host) killed.functions += signal(host.pid);
      } else {
        const groups = [...new Set(home.vmGroups())];
        const group = groups[Math.floor(random() * groups.length)];
        if (group !== undefined && group > 1) killed.worker += signal(-group);
      }
    }
    assert.ok(killed.worker > 0 && killed.functions > 0 && killed.cloud > 0, JSON.stringify(killed));
    const ended = await home.runEnds('wild');
    assert.equal(ended?.run.status, 'completed', JSON.stringify(ended));
    const report = await home.verify('wild');
    assert.equal(report.ok, true, JSON.stringify(report));
    assert.deepEqual(await shards(home, 'wild'), undisturbed);
  });

  it('stores a partial shard at a preemption notice, and deletes the partial shard when the stream is complete @long', async () => {
    await home.drop('datasets/told/run.json', JSON.stringify({layers: '0-1', shard_size_gb: 1}));
    await home.drop('datasets/told/stream_000.jsonl', texts(6000, 'told'));
    const view = () => home.view('told');
    const computing = (some: RunState | undefined) => (some?.workers[0]?.samples_done ?? 0) > 0;
    const working = await home.until('computed samples', view, computing);
    await home.fault('preempt-with-notice', working?.workers[0]?.name ?? '');
    const partials = () => home.objects.list('partials/told/tpu_0/');
    const [saved] = await home.until('a partial shard', partials, list => list.length > 0);
    assert.ok((saved?.size_bytes ?? 0) > 10_000, 'the partial shard has rows');
    await home.fault('preempt', working?.workers[0]?.name ?? '');
    const ended = await home.runEnds('told');
    assert.equal(ended?.run.status, 'completed');
    assert.equal((await home.verify('told')).ok, true);
    assert.deepEqual(await partials(), []);
  });

  /** Kills the cloud, and waits for the end of every process of the cloud. */
  async function killCloud(): Promise<void> {
    const groups = new Set(home.vmGroups());
    await home.killHard();
    await home.until(
      'the end of every process of the cloud',
      () => processes().filter(({args, pgid}) => args.includes(home.dir) || groups.has(pgid)),
      list => list.length === 0,
    );
  }
});
