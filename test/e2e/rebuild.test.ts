import assert from 'node:assert/strict';
import {readdirSync, readFileSync, rmSync} from 'node:fs';
import {join} from 'node:path';
import {gleaner, SPEC, TestHome, texts} from '../support/machine/home.ts';

/** The uploads of shards that the consoles of the VMs show. A worker that is stopped after an upload may not log it. */
function uploaded(home: TestHome, run: string): string[] {
  const logs = join(home.dir, 'logs');
  const text = readdirSync(logs)
    .map(name => readFileSync(join(logs, name), 'utf8'))
    .join('\n');
  return [...text.matchAll(/(?:Stored|Found) (activations\/[\w/-]+\/shard_[\w.]+)/g)]
    .map(match => match[1] ?? '')
    .filter(name => name.startsWith(`activations/${run}/`))
    .sort();
}

// Before a merge, test/control-plane/whole/lost-store.test.ts and the simulated worlds lose the database.
describe('a local cloud whose database is lost in mid-run @long', () => {
  let home: TestHome;
  before(async () => {
    home = await TestHome.start();
  });
  after(() => home.remove());

  it('is rebuilt from the bucket: a stopped run stays stopped, another waits for an operator, nothing stored is computed again, and all is verified', async () => {
    // Stream 002 is for a third TPU, which this cloud does not have: the run cannot end before the stop.
    await home.drop('datasets/halted/run.json', JSON.stringify({...JSON.parse(SPEC), affinity: 'fixed'}));
    await home.drop('datasets/halted/stream_000.jsonl', texts(40, 'halted'));
    await home.drop('datasets/halted/stream_002.jsonl', texts(1, 'halted'));
    await home.until(
      'a shard of the run to stop',
      () => home.view('halted'),
      view => view?.streams.some(stream => stream.total_shards >= 1) ?? false,
    );
    await home.publish({action: 'stop', run: 'halted'});
    const stop = await home.until(
      'the stop',
      () => home.view('halted'),
      view => view?.run.status === 'stopped',
    );
    assert.ok(stop);
    await home.drop('datasets/my-run/run.json', SPEC);
    for (const index of [0, 1])
      await home.drop(`datasets/my-run/stream_00${index}.jsonl`, texts(130, `s${index}`));
    const view = () => home.view('my-run');
    const some = (found: Awaited<ReturnType<typeof view>>) =>
      found?.streams.some(stream => stream.total_shards >= 2) ?? false;
    await home.until('some shards', view, some);
    await home.stop();
    for (const suffix of ['', '-wal', '-shm']) rmSync(join(home.dir, `state.db${suffix}`), {force: true});

    const lost = await gleaner(['rebuild', '--dry-run', '--json', '--dir', home.dir]);
    assert.equal(lost.code, 1, lost.stderr);
    const {runs} = JSON.parse(lost.stdout);
    assert.deepEqual(
      runs.map(({run, wrong}: {run: string; wrong: {finding: string}[]}) => [
        run,
        wrong.map(({finding}) => finding),
      ]),
      [
        ['halted', ['missing', 'missing']],
        ['my-run', ['missing', 'missing']],
      ],
    );
    const asleep = await gleaner(['rebuild', '--dir', home.dir]);
    assert.deepEqual([asleep.code, /the local cloud in .+ is stopped/.test(asleep.stderr)], [1, true]);

    await home.up();
    const made = await gleaner(['rebuild', '--dir', home.dir]);
    assert.equal(made.code, 0, made.stderr);
    assert.match(made.stdout, /rebuilt my-run: 2 streams with \d+ shards in the bucket/);
    assert.equal((await home.view('my-run'))?.run.status, 'paused');
    await home.publish({action: 'resume', run: 'my-run'});
    const ended = await home.runEnds('my-run');
    assert.equal(ended?.run.status, 'completed', JSON.stringify(ended));
    assert.equal((await home.view('halted'))?.run.status, 'stopped', 'the bucket has the stop');
    const found = await gleaner(['rebuild', '--dry-run', '--dir', home.dir]);
    assert.equal(found.code, 0, `the documents say what the bucket holds: ${found.stdout}${found.stderr}`);
    const report = await home.verify('my-run');
    assert.equal(report.ok, true, JSON.stringify(report));
    const stored = await home.objects.list('activations/my-run/tpu_');
    const shards = stored.map(({name}) => name).filter(name => name.includes('/shard_'));
    const uploads = uploaded(home, 'my-run');
    assert.ok(uploads.length > 0, 'consoles show uploads');
    assert.deepEqual(
      uploads,
      [...new Set(uploads)].filter(name => shards.includes(name)),
      'no shard is uploaded twice',
    );
    assert.deepEqual((await home.state()).tpus, []);
  });
});
