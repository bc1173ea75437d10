import assert from 'node:assert/strict';
import {comparisonLines, readComparison, storeComparison} from '../../../cli/run/reference.ts';
import type {Objects} from '../../../shared/ports/ports.ts';
import {FakeBucket} from '../../world/bucket.ts';
import {T0} from '../../world/builders.ts';
import {callAtOnce} from '../../world/call.ts';

const NAME = 'activations/my-run/manifest.json';
const FOUND = {
  ...{at: '2026-11-26T00:00:00Z', samples: 1, rows: 20, versions: {transformers: '5.23.0', torch: '2.15.0'}},
  drift: {
    'resid_post.12': {
      ...{relative_error: 0.00412, cosine: 0.999991},
      worst: {stream: '007', sample: 3, position: 11, relative_error: 0.031},
    },
  },
};

function aBucket(text: string): {bucket: FakeBucket; objects: Objects; stored: () => Promise<unknown>} {
  const bucket = new FakeBucket(() => T0);
  bucket.put(NAME, text);
  const objects = bucket.through(callAtOnce);
  const stored = async () =>
    JSON.parse(String(Buffer.from((await objects.read(NAME, {max_bytes: 1e6})) ?? '')));
  return {bucket, objects, stored};
}

describe('The comparison of a run with transformers', () => {
  it('the comparison of a run with transformers is kept in the manifest beside every other key, also of a later release', async () => {
    const {objects, stored} = aBucket('{"schema": "gleaner/1", "result": {"samples": 3}, "later": [1]}');
    await storeComparison(objects, 'my-run', FOUND);
    await storeComparison(objects, 'my-run', {...FOUND, samples: 2});
    const manifest = {schema: 'gleaner/1', result: {samples: 3}, later: [1]};
    assert.deepEqual(await stored(), {...manifest, reference: {...FOUND, samples: 2}});
    assert.deepEqual(await readComparison(objects, 'my-run'), {...FOUND, samples: 2});
  });

  it('the comparison of a run with transformers overwrites no result that was written at the same time', async () => {
    const {bucket, objects, stored} = aBucket('{"schema": "gleaner/1"}');
    let isLate = true;
    const read: Objects['read'] = async (...args) => {
      const bytes = await objects.read(...args);
      if (isLate) bucket.put(NAME, '{"schema": "gleaner/1", "result": {"samples": 3}}');
      isLate = false;
      return bytes;
    };
    await storeComparison({...objects, read}, 'my-run', FOUND);
    assert.deepEqual(await stored(), {schema: 'gleaner/1', result: {samples: 3}, reference: FOUND});
  });

  it('the comparison of a run with transformers is read as absent where a manifest has none or another one', async () => {
    for (const text of [
      '{"schema": "gleaner/1"}',
      '{"schema": "gleaner/1", "reference": {"samples": -1}}',
      '[',
    ])
      assert.equal(await readComparison(aBucket(text).objects, 'my-run'), null);
  });

  it('the comparison of a run with transformers is a row for each layer', () => {
    const text = comparisonLines(FOUND)
      .map(line => line.text)
      .join('\n');
    assert.match(text, /resid_post\.12 +4\.1e-3 +0\.999991 +3\.1e-2 +stream 007, sample 3, token 11/);
    assert.match(
      text,
      /compared: 1 sample with 20 rows, computed again in fp32 by transformers 5\.23\.0, torch 2\.15\.0/,
    );
  });
});
