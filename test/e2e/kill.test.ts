import assert from 'node:assert/strict';
import {setTimeout as sleep} from 'node:timers/promises';
import {seeded} from '../../cli/demo/input.ts';
import type {RunView} from '../../cli/run/run-view.ts';
import {FAST, processes, SPEC, signal, TestHome, texts} from './home.ts';

/** Without a memory of losses: the third early loss of a zone, which a slow machine may show, would stop its creates for 10 minutes. */
const SETTINGS = {...FAST, GLEANER_CHURN_WINDOW_S: '1'};

const KILLS = Number(process.env.GLEANER_KILLS ?? 4);
const STREAMS = ['datasets/RUN/stream_000.jsonl', 'datasets/RUN/stream_001.jsonl'];

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
  for (const [index, name] of STREAMS.entries())
    await home.drop(name.replace('RUN', run), texts(600 + 200 * index, `s${index}`));
}

describe('A run on a local cloud', () => {
  let home: TestHome;
  before(async () => {
    home = await TestHome.start(2, SETTINGS);
  });
  after(() => home.remove());

  it(`has the bytes of an undisturbed run after ${KILLS} kills of workers, function host and cloud`, async () => {
    await dropRun(home, 'calm');
    await home.runEnds('calm');
    const undisturbed = await shards(home, 'calm');
    assert.ok(Object.keys(undisturbed).length > 8, 'each stream has several shards');

    await dropRun(home, 'wild');
    const victims = ['worker', 'worker', 'functions', 'cloud'] as const;
    const random = seeded(12345);
    const killed = {worker: 0, functions: 0, cloud: 0};
    const workersOfWild = async () => ({
      groups: home.vmGroups(),
      status: (await home.view('wild'))?.run.status,
    });
    const isKillable = ({groups, status}: {groups: number[]; status: string | undefined}) =>
      groups.length > 0 || (status !== undefined && status !== 'active');
    for (let kill = 0; kill < KILLS; kill++) {
      // A fast machine ends the run within seconds: each kill waits for a worker, and not for long after it.
      await home.until('a worker or the end of the run', workersOfWild, isKillable);
      await sleep(random() * 3000);
      const victim = victims[kill % victims.length] ?? 'worker';
      if (victim === 'cloud') {
        await home.killHard();
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
    const view = await home.runEnds('wild');
    assert.equal(view?.run.status, 'completed', JSON.stringify(view));
    const report = await home.verify('wild');
    assert.equal(report.ok, true, JSON.stringify(report));
    assert.deepEqual(await shards(home, 'wild'), undisturbed);
  });

  it('stores a partial shard at a preemption notice, and deletes the partial shard when the stream is complete', async () => {
    await home.drop('datasets/told/run.json', JSON.stringify({layers: '0-1', shard_size_gb: 1}));
    await home.drop('datasets/told/stream_000.jsonl', texts(6000, 'told'));
    const view = () => home.view('told');
    const computing = (some: RunView | undefined) => (some?.workers[0]?.samples_done ?? 0) > 0;
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

  it('leaves no process after a kill of the cloud', async () => {
    await dropRun(home, 'orphan');
    const groups = new Set<number>();
    const ours = () => {
      for (const group of home.vmGroups()) groups.add(group);
      return processes().filter(({args, pgid}) => args.includes(home.dir) || groups.has(pgid));
    };
    await home.until(
      'a running worker',
      async () => ours(),
      list => list.some(({args}) => args.includes('gleaner_worker.agent')),
    );
    await home.killHard();
    await home.until(
      'the end of every process of the cloud',
      async () => ours(),
      list => list.length === 0,
    );
    await home.up();
  });
});
