import assert from 'node:assert/strict';
import {readdirSync, readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import {getFunction} from '@google-cloud/functions-framework/testing';
import '../../../functions/index.ts';
import triggers from '../../../functions/triggers.json' with {type: 'json'};

const FOLDER = fileURLToPath(new URL('../../../functions/', import.meta.url));

describe('functions', () => {
  const files = readdirSync(FOLDER).filter(name => name.endsWith('.ts') && name !== 'index.ts');

  it('are registered under the names that triggers.json has, one file each', () => {
    const names = triggers.functions.map(({name}) => name);
    assert.deepEqual(names.toSorted(), files.map(file => file.replace('.ts', '')).toSorted());
    for (const name of names) assert.equal(typeof getFunction(name), 'function', name);
  });

  it('end before Pub/Sub delivers their message again, which is after 600 s at most', () => {
    for (const {name, timeout_s} of triggers.functions)
      assert.ok(timeout_s > 0 && timeout_s < 600, `${name} has ${timeout_s} s`);
  });

  it('have several instances, except on-tick: one tick runs at a time', () => {
    for (const {name, instances} of triggers.functions)
      assert.equal(instances === 1, name === 'on-tick', `${name} has ${instances}`);
  });

  it('have a topic with a function for every notification of Cloud Storage', () => {
    const topics = triggers.functions.map(({trigger}) => trigger.topic);
    for (const {topic, prefixes} of triggers.notifications) {
      assert.ok(topics.includes(topic), topic);
      assert.deepEqual(prefixes, ['datasets/', 'activations/']);
    }
  });

  it('keep every handler under 30 lines', () => {
    for (const file of files) {
      const lines = readFileSync(`${FOLDER}${file}`, 'utf8').split('\n').length;
      assert.ok(lines < 40, `${file} has ${lines} lines`);
    }
  });
});
