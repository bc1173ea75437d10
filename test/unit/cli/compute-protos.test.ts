import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {type Entry, neededOf} from '../../../cli/build/compute-protos.ts';

const FILE = new URL('../../../node_modules/@google-cloud/compute/build/protos/protos.json', import.meta.url);

describe('the messages of Compute Engine in the bundle', () => {
  const whole = JSON.parse(readFileSync(FILE, 'utf8')) as Entry;
  const v1In = (root: Entry) => root.nested?.google?.nested?.cloud?.nested?.compute?.nested?.v1?.nested ?? {};

  it('the messages of Compute Engine in the bundle are those that the calls reach, and a hundredth of all', () => {
    const small = neededOf(whole);
    const [all, kept] = [v1In(whole), v1In(small)];
    const missing = Object.values(kept).flatMap(({fields = {}}) =>
      Object.values(fields).flatMap(({type = ''}) => (all[type] && !kept[type] ? type : [])),
    );
    assert.deepEqual(missing, []);
    for (const name of ['Instance', 'Scheduling', 'Operation', 'InstancesScopedList'])
      assert.ok(kept[name], name);
    assert.ok(JSON.stringify(small).length < 200_000);
  });

  it('the messages of Compute Engine in the bundle miss no method without a word', () =>
    assert.throws(() => neededOf({}), /has unexpected methods/));
});
