import assert from 'node:assert/strict';
import {someLines} from '../agent.ts';
import {World} from '../world.ts';

const HUB = {
  GLEANER_HF_ENDPOINT: 'https://mirror.example',
  GLEANER_HF_TOKEN_SECRET: 'projects/p/secrets/hub-token',
};

describe('a node', () => {
  for (const [name, set, expected] of [
    ['the hub and the name of its secret', HUB, ['https://mirror.example', 'projects/p/secrets/hub-token']],
    ['nothing of a hub where none is set', {}, [undefined, undefined]],
  ] as const)
    it(`is told ${name}, beside who it is`, async () => {
      const world = new World({...set, GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'});
      world.drop('my-run', 0, someLines(5, 's0'));
      await world.until('make a node', () => world.tpus.made.length > 0, 9, 1);
      const {metadata} = world.tpus.node('tpu-us-central1-a-0');
      assert.deepEqual([metadata['gleaner-hf-endpoint'], metadata['gleaner-hf-token-secret']], expected);
      assert.equal(metadata['gleaner-worker'], 'tpu-us-central1-a-0');
      assert.equal(metadata['gleaner-bucket'], 'bucket');
    });
});
