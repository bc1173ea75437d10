import assert from 'node:assert/strict';
import {answers} from '../../client/json/index.ts';
import type {TpuRow} from '../../client/views/tpus.ts';
import {gleaner} from '../support/machine/command.ts';
import {TestHome, texts} from '../support/machine/home.ts';
import {until} from '../support/machine/until.ts';

const A = 'tpu-us-central1-a-0';
/** For a stream that is at work during all tests, with few events of shards. */
const SPEC = JSON.stringify({layers: '0-1', shard_size_gb: 0.002});

describe('The commands about TPUs, logs and events', () => {
  let home: TestHome;
  const run = (...args: string[]) => gleaner([...args, '--dir', home.dir]);
  /** Runs a command that succeeds, and returns its output. */
  const output = async (...args: string[]): Promise<string> => {
    const {code, stdout, stderr} = await run(...args);
    assert.equal(code, 0, `gleaner ${args.join(' ')}: ${stdout}${stderr}`);
    return stdout;
  };
  /** Each line of the answer of --json, checked with the schema of the command. */
  const answersOf = async <T>(path: string, ...args: string[]): Promise<T[]> => {
    const lines = (await output(...path.split(' '), ...args, '--json')).trim().split('\n');
    return lines.map(line => answers[path]?.parse(JSON.parse(line)) as T);
  };
  const tpus = async (...args: string[]): Promise<TpuRow[]> => {
    const [list] = await answersOf<{tpus: TpuRow[]}>('tpus list', ...args);
    return list?.tpus ?? [];
  };

  before(async () => {
    home = await TestHome.start(1);
    await home.drop('datasets/fl/run.json', SPEC);
    await home.drop('datasets/fl/stream_000.jsonl', texts(60_000, 's'));
    await until('a log', () => home.objects.head(`logs/${A}/1.log`), Boolean);
    await home.until(
      'a shard',
      () => home.view('fl'),
      view => view?.streams.some(stream => stream.total_shards > 0) ?? false,
    );
  });
  after(() => home?.remove());

  it('list the TPUs at work and their price, show one, and print its log', async () => {
    const [list, [one], log, logs] = await Promise.all([
      output('tpus', 'list'),
      answersOf<TpuRow & {provider_state: string}>('tpus status', A),
      output('logs', A, '--tail', '1'),
      answersOf<{tpu: string; severity: string}>('logs', 'fl', '--tail', 'all'),
    ]);
    assert.match(list, new RegExp(`^${A} +WORKING +fl/000 .*\\$0\\.\\d{2,5} +working +us-central1-a`, 'm'));
    assert.match(list, /^1 TPU, 1 at work, \$0\.\d{2,5} an hour$/m);
    assert.deepEqual([one?.status, one?.provider_state, one?.incarnation], ['WORKING', 'READY', 1]);
    assert.match(log, /^\d\d:\d\d:\d\d INFO .*\n$/);
    assert.deepEqual(new Set(logs.map(({tpu}) => tpu)), new Set([A]));
  });

  it('delete a TPU after a question, keep its slot empty, and fill it again', async () => {
    const {code, stderr} = await run('tpus', 'delete', A);
    assert.equal(code, 1);
    assert.match(stderr, /1 TPU will be deleted, which saves \$0\.\d\d an hour:[\s\S]*back to the queue/);
    const [sent] = await answersOf<{results: unknown}>('tpus delete', A, '--yes');
    const reason = `${A} will be deleted, and its slot stays empty until recreate`;
    assert.deepEqual(sent?.results, [{tpu: A, outcome: 'applied', reason}]);
    const worker = () => home.read(store => store.get(`workers/${A}`));
    await until('the empty slot', worker, found => found?.phase === 'gone');
    assert.equal((await tpus('--all')).find(({tpu}) => tpu === A)?.status, 'HELD');
    assert.match(await output('tpus', 'create', A), /it is created again when there is work/);
    await until('the next incarnation', worker, found => found?.incarnation === 2);
  });

  it('print the timeline of a run, and end with the run', async () => {
    await home.publish({action: 'stop', run: 'fl'});
    const events = await answersOf<{text: string}>('events', 'fl', '--follow', '--tail', 'all');
    const has = (pattern: RegExp) => events.some(({text}) => pattern.test(text));
    assert.ok(has(/^Shard 1 of fl\/000 stored/) && has(/is deleted, as asked/) && has(/incarnation 2/));
    assert.match(
      await output('events', 'fl', '--kind', 'shard'),
      /^\S+ \S+ Shards [\d, -]+ of fl\/000 stored/m,
    );
  });

  it('set the ceiling of a pool, and say what it can cost', async () => {
    const [created] = await answersOf<{ceiling: unknown}>('tpus create', '--workers-per-zone', '1');
    assert.match(JSON.stringify(created?.ceiling), /"most_tpus":1,"most_usd_per_hour":0\.\d+,/);
    const {stderr} = await run('pool', 'delete', 'nope');
    assert.match(stderr, /\ngleaner: There is no pool "nope", only tpu: /);
  });

  it('name an invalid document, and a rejected message with exit code 1', async () => {
    await home.read(store =>
      store.transaction(async tx => {
        const found = await tx.get(`workers/${A}`);
        tx.set('workers/tpu-us-central1-a-8', {...found, phase: 8});
        tx.set('workers/tpu-us-central1-a-9', {...found, name: 'tpu-us-central1-a-7', phase: 'gone'});
      }),
    );
    const {code, stdout, stderr} = await run('tpus', 'delete', 'tpu-us-central1-a-7', '--yes');
    assert.equal(code, 1);
    assert.match(stdout, /^tpu-us-central1-a-7: rejected: there is no worker/);
    assert.match(stderr, /\nFailed to read workers\/tpu-us-central1-a-8: phase: /);
  });

  it('end every TPU of a deployment, and then the tick', async () => {
    const [planned] = await answersOf<{destroyed: boolean; goes: string[]}>('destroy', '--dry-run');
    assert.equal(planned?.destroyed, false);
    assert.equal((await run('tick', 'state')).stdout, 'the minutely tick (ENABLED)\n');
    const {code, stdout, stderr} = await run('destroy', '--yes');
    assert.equal(code, 0, stderr);
    assert.match(stderr, /pool tpu has workers_per_zone 0/);
    assert.match(stdout, /The deployment gleaner is destroyed. These stay:/);
    assert.deepEqual((await home.state()).tpus, []);
    assert.equal((await run('tick', 'state')).stdout, 'the minutely tick (PAUSED)\n');
  });
});
