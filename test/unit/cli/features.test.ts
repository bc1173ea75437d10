/** Features for the pages: one reading at a time, kept in the cache folder. */
import assert from 'node:assert/strict';
import {mkdirSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {featureReader} from '../../../cli/local/features.ts';
import {googleConnection} from '../../../client/connection/google-connection.ts';
import type {runWorkerModule} from '../../../client/python/python.ts';
import type {FeatureAsked, FeatureKnown} from '../../../client/views/feature.ts';
import {Folder} from '../../support/machine/folder.ts';
import {until} from '../../support/machine/until.ts';

const CONNECTION = googleConnection({project: 'p', deployment: 'gleaner', origin: 'the test'});
const ASKED: FeatureAsked = {run: 'my-run', version: '1', isComplete: true, name: 'scope', layer: 2, id: 7};
const FEATURE = {
  ...{name: 'scope', layer: 2, id: 7, active: 0, density: 0, at_least: false, max: 0},
  ...{by_stream: {}, density_by_stream: {}, histogram: Array(64).fill(0), examples: []},
};

const isKnown = (known: FeatureKnown) => 'feature' in known;

type Started = {
  args: string[];
  say: (line: string) => void;
  signal: AbortSignal | undefined;
  /** Ends the process after it has written the file, or with an error. */
  end: (of: object | string) => void;
};

function aReader() {
  const started: Started[] = [];
  const clock = {now_ms: 0};
  const run: typeof runWorkerModule = (args, _env, say, _lock, _onLine, {signal} = {}) => {
    const {promise, resolve} = Promise.withResolvers<Awaited<ReturnType<typeof runWorkerModule>>>();
    const end = (of: object | string) => {
      const output = args.at(-1) ?? '';
      mkdirSync(output, {recursive: true});
      if (typeof of === 'string') return resolve({code: 1, stdout: [], stderr: ['1 of 2 rows', of]});
      writeFileSync(join(output, '7.json'), JSON.stringify(of));
      resolve({code: 0, stdout: [], stderr: []});
    };
    started.push({args, say, signal, end});
    return promise;
  };
  const reader = featureReader(CONNECTION, {run, now: () => clock.now_ms});
  /** Asks as a page does, again and again: a reading may not have ended when its file is there. */
  const begun = (count: number, of = ASKED) =>
    until(
      `${count} starts`,
      () => reader.read(of, true).then(() => started.length),
      each => each === count,
    );
  return {reader, started, begun, clock};
}

describe('The reader of features', () => {
  const folder = new Folder(afterEach);
  const {XDG_CACHE_HOME = ''} = process.env;
  beforeEach(() => {
    process.env.XDG_CACHE_HOME = folder.path;
  });
  afterEach(() => {
    process.env.XDG_CACHE_HOME = XDG_CACHE_HOME;
  });

  it('the reader of features reads one at a time, says how far it is, and finds it again in the cache', async () => {
    const {reader, started, begun} = aReader();
    await Promise.all([reader.read(ASKED, true), reader.read(ASKED, true)]);
    await begun(1);
    started[0]?.say('1,000 of 20,000 rows');
    assert.deepEqual(await reader.read(ASKED, true), {
      text: 'Reading the run: 1,000 of 20,000 rows',
      isUnread: false,
    });
    assert.deepEqual(await reader.read({...ASKED, id: 8}, true), {
      text: 'Waiting for another feature',
      isUnread: false,
    });
    started[0]?.end(FEATURE);
    const known = await until('the feature', () => reader.read(ASKED, true), isKnown);
    assert.deepEqual(known, {feature: FEATURE});
    assert.deepEqual(await aReader().reader.read(ASKED, true), {feature: FEATURE});
    assert.equal(started.length, 1);
    await begun(2, {...ASKED, version: '2'});
    assert.match(
      started[1]?.args.join(' ') ?? 'further shards are not read',
      /export gs:\/\/\S+\/activations\/my-run --to features --layer 2 --ids 7 --site scope --output /,
    );
    reader.close();
    assert.equal(started[1]?.signal?.aborted, true);
  });

  it('the reader of features shows what it has of an unfinished run while it reads that again, and stops when nobody asks', async () => {
    const {reader, started, begun, clock} = aReader();
    const asked = {...ASKED, isComplete: false};
    assert.match(JSON.stringify(await reader.read(asked, false)), /Not read yet.*"isUnread":true/);
    await begun(1, asked);
    started[0]?.end(FEATURE);
    await until('the feature', () => reader.read(asked, true), isKnown);
    clock.now_ms = Date.now() + 700_000;
    await begun(2, asked);
    assert.deepEqual(await reader.read(asked, true), {feature: FEATURE});
    clock.now_ms += 70_000;
    await until('the end', async () => started[1]?.signal?.aborted, Boolean);
  });

  for (const [name, end, says] of [
    [
      'that ends with an error',
      'Failed to export: no tokenizer',
      /^Failed to read: Failed to export: no tokenizer$/,
    ],
    ['whose file has another form', {...FEATURE, histogram: [1]}, /^Failed to read: .*7\.json/s],
  ] as const)
    it(`the reader of features says why a reading failed ${name}, and tries again when no page has asked for a while`, async () => {
      const {reader, started, begun, clock} = aReader();
      await begun(1);
      started[0]?.end(end);
      const hasFailed = (known: FeatureKnown) => 'text' in known && says.test(known.text);
      for (let n = 0; n < 5; n++) {
        await until('the failure', () => reader.read(ASKED, true), hasFailed);
        clock.now_ms += 40_000;
      }
      assert.equal(started.length, 1);
      clock.now_ms += 40_000;
      assert.match(JSON.stringify(await reader.read(ASKED, true)), /Reading the run/);
      await begun(2);
    });
});
