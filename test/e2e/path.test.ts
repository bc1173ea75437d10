import assert from 'node:assert/strict';
import {readFileSync, statSync} from 'node:fs';
import {join} from 'node:path';
import {gzipSync} from 'node:zlib';
import {listRejected} from '../../client/events/read.ts';
import {needEmulators} from '../contract/emulators.ts';
import {gleaner} from '../support/machine/command.ts';
import {SPEC, TestHome, texts} from '../support/machine/home.ts';
import {addJobOfSeeds, testEmulators} from './emulators.ts';

/** For a stream that is still at work when a message arrives: few shards, so that their events do not delay the message. */
const LONG_SPEC = JSON.stringify({layers: '0-1', shard_size_gb: 0.001});

/** Drops a run with bad lines, an empty stream and two objects of one index, and objects that no run takes. */
async function dropBadLines(home: TestHome): Promise<void> {
  const good = (n: number) => JSON.stringify({text: `good record ${n}`});
  const lines = [
    `\ufeff${good(0)}`,
    `${good(1)}\r`,
    'not json',
    '{"unknown": "field"}',
    '',
    '[1, 2]',
    '{"text": 7}',
    good(2),
    JSON.stringify({text: 'word '.repeat(20_000)}),
    good(3),
  ];
  const bytes = Buffer.concat([
    Buffer.from(lines.join('\n')),
    Buffer.from('\n{"text": "\xff"}\n', 'latin1'),
    Buffer.from(good(4)),
  ]);
  await home.drop('datasets/bad/run.json', SPEC);
  await home.drop('datasets/bad/stream_000.jsonl', bytes);
  await home.drop('datasets/bad/stream_001.jsonl', '');
  await home.drop('datasets/bad/stream_2.jsonl', good(0));
  await home.drop('datasets/misnamed/stream_7.jsonl', good(0));
  await home.drop('datasets/misnamed/\u001b[2J.jsonl', good(0));
  await home.drop('datasets/bad/stream_003.jsonl', `${good(9)}\n`);
  await home.drop('datasets/bad/stream_003.jsonl.gz', gzipSync(good(9)));
}

/** Drops a run without its model, and a run beside it. */
async function dropMissingModel(home: TestHome): Promise<void> {
  await home.drop(
    'datasets/nomodel/run.json',
    JSON.stringify({model: `gs://${home.ready.bucket}/models/none`}),
  );
  await home.drop('datasets/nomodel/stream_000.jsonl', texts(5, 'd'));
  await home.drop('datasets/fine/run.json', SPEC);
  await home.drop('datasets/fine/stream_000.jsonl', texts(20, 'e'));
}

describe("The built functions of Gleaner on a local cloud with Google's emulators", () => {
  let home: TestHome;
  let job: Awaited<ReturnType<typeof addJobOfSeeds>>;
  before(async function () {
    needEmulators(this);
    home = await TestHome.start(1, {}, ['--built', '--emulators']);
    // The runs share the VM: each boot of a VM from an archive takes seconds.
    await home.drop('datasets/first/run.json', SPEC);
    await home.drop('datasets/first/stream_000.jsonl', texts(120, 'a'));
    await home.drop('datasets/first/stream_001.jsonl.gz', gzipSync(texts(80, 'b')));
    await dropBadLines(home);
    await dropMissingModel(home);
    job = await addJobOfSeeds(home);
  });
  after(async () => {
    await job?.firestore.terminate();
    await home?.remove();
  });

  it('writes its address to a file that only its user can read', () => {
    const file = join(home.dir, 'address.json');
    const {url, dir, firestore_endpoint} = JSON.parse(readFileSync(file, 'utf8'));
    assert.deepEqual([url, dir, typeof firestore_endpoint], [home.ready.url, home.dir, 'string']);
    assert.equal(statSync(file).mode & 0o777, 0o600);
  });

  it('turns dropped streams into verified shards and deletes every TPU', async () => {
    const view = await home.runEnds('first');
    assert.equal(view?.run.status, 'completed');
    const report = await home.verify('first');
    assert.deepEqual(
      {ok: report.ok, once: report.stored_once, problems: report.problems},
      {ok: true, once: 200, problems: []},
    );
    const state = await home.until(
      'a state without TPUs',
      () => home.state(),
      state => state.tpus.length === 0,
    );
    assert.deepEqual(state.tpus, []);
  });

  it('lists every bad line with its reason in rejects.jsonl, and stores the good lines and the other streams', async () => {
    const view = await home.runEnds('bad');
    const byStream = new Map(view?.streams.map(stream => [stream.stream, stream]));
    assert.equal(byStream.get('000')?.status, 'completed');
    assert.equal(byStream.get('000')?.total_samples_processed, 5);
    assert.equal(byStream.get('000')?.rejected_samples, 7);
    assert.equal(byStream.get('001')?.status, 'failed');
    assert.match(byStream.get('001')?.last_error ?? '', /stream_001\.jsonl is empty/);
    assert.equal(byStream.get('003')?.status, 'completed');
    assert.equal(byStream.has('002'), false);
    const rejects = await home.objects.read('activations/bad/tpu_0/rejects.jsonl', {max_bytes: 1e6});
    const reasons = Buffer.from(rejects ?? '')
      .toString('utf8')
      .trim()
      .split('\n')
      .map(line => JSON.parse(line));
    assert.deepEqual(
      reasons.map(reject => reject.line),
      [3, 4, 5, 6, 7, 9, 11],
    );
    assert.match(reasons.find(reject => reject.line === 9).reason, /2048/);
    const {objects} = home;
    const found = await home.read(store => listRejected({store, objects}, run => run === 'bad'));
    const told = found.map(event => event.text).join('\n');
    assert.match(told, /stream_2\.jsonl/);
    // The stream of the first event has the index.
    assert.match(told, /stream_003\.jsonl(\.gz)? has the same index/);
    const misnamed = await gleaner(['status', 'misnamed', '--dir', home.dir]);
    assert.deepEqual(
      [misnamed.code, /There is no run "misnamed"[\s\S]*rejected: .*stream_7/.test(misnamed.stderr)],
      [1, true],
    );
    assert.ok(!misnamed.stderr.includes('\u001b'), 'no control character of a name reaches the terminal');
    const all = await gleaner(['status', '--dir', home.dir]);
    assert.match(all.stdout, /rejected: .*misnamed\/stream_7/);
    assert.doesNotMatch(all.stdout, /rejected: .*bad\/stream_2/, 'the run lists this object');
  });

  it('fails a run without its model and names the model, while other runs continue', async () => {
    const [bad, fine] = await Promise.all([home.runEnds('nomodel'), home.runEnds('fine')]);
    assert.equal(bad?.run.status, 'failed');
    assert.match(bad?.run.reason ?? '', /models\/none/);
    assert.equal(fine?.run.status, 'completed');
  });

  it('extracts a further stream of a completed run @long', async () => {
    await home.drop('datasets/first/stream_002.jsonl', texts(40, 'c'));
    await home.until(
      'the new stream',
      () => home.view('first'),
      view => view?.streams.length === 3,
    );
    const view = await home.runEnds('first');
    assert.equal(view?.run.total_samples_processed, 240);
    assert.equal((await home.verify('first')).ok, true);
  });

  it('pauses and resumes a run by message, between messages that are invalid @long', async () => {
    await dropLongStream('paused');
    await home.publish({action: 'pause', run: 'paused'});
    const paused = await home.until(
      'the pause',
      () => home.view('paused'),
      view => view?.run.status === 'paused' && view.workers.length === 0,
    );
    assert.equal(paused.streams[0]?.status, 'pending');
    for (const bad of [
      'not json',
      '{"action":"dance","run":"paused"}',
      '{"action":"pause","run":"paused","x":1}',
      '{"action":"pause","run":"unknown"}',
    ])
      await home.publish(bad);
    await home.publish({action: 'resume', run: 'paused'});
    await shardsBeyond('paused', paused.streams[0]?.total_shards ?? 0);
    await home.publish({action: 'stop', run: 'paused'});
    await home.runEnds('paused');
  });

  // Before a merge, test/worker/shards/test_existing_shards.py and test/control-plane/streams/overwritten-streams.test.ts overwrite a stream.
  it('fails a stream whose object is overwritten during the extraction @long', async () => {
    await dropLongStream('overwritten');
    const name = 'datasets/overwritten/stream_000.jsonl';
    const {generation = assert.fail()} = (await home.objects.head(name)) ?? {};
    assert.equal(await home.objects.replace(name, generation, Buffer.from(texts(50, 'h'))), 'replaced');
    const view = await home.runEnds('overwritten');
    assert.equal(view?.run.status, 'failed');
    assert.match(view?.streams[0]?.last_error ?? '', /overwritten/);
    assert.equal((await home.verify('overwritten')).ok, false);
  });

  testEmulators(() => ({home, job}));

  /** Drops a run of one long stream, and waits until it is at work. */
  async function dropLongStream(run: string): Promise<void> {
    await home.drop(`datasets/${run}/run.json`, LONG_SPEC);
    await home.drop(`datasets/${run}/stream_000.jsonl`, texts(20_000, 'f'));
    await shardsBeyond(run, 0);
  }

  /** Waits until the stream at work has more shards. */
  async function shardsBeyond(run: string, count: number): Promise<void> {
    await home.until(
      `shards of ${run} beyond ${count}`,
      () => home.view(run),
      view => (view?.streams[0]?.total_shards ?? 0) > count,
    );
  }
});
