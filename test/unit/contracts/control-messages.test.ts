import assert from 'node:assert/strict';
import {Ajv2020} from 'ajv/dist/2020.js';
import fc from 'fast-check';
import {controlJsonSchema} from '../../../cli/build/reference/json-schemas.ts';
import {Rejected} from '../../../shared/contracts/errors.ts';
import {parseValue} from '../../../shared/contracts/messages/schemas.ts';
import {controlMessage} from '../../../shared/control-plane/events/commands/table.ts';

const refused: {name: string; given: unknown; says: string}[] = [
  {name: 'an unknown action', given: {action: 'destroy', run: 'r'}, says: 'action'},
  {name: 'no action', given: {run: 'r'}, says: 'action'},
  {name: 'an unknown key', given: {action: 'pause', run: 'r', force: true}, says: 'force'},
  {name: 'a key of another action', given: {action: 'pause', run: 'r', worker: 'w'}, says: 'worker'},
  {name: 'no run', given: {action: 'pause'}, says: 'run'},
  {name: 'an invalid run id', given: {action: 'pause', run: '../x'}, says: 'a run id'},
  {name: 'an invalid worker name', given: {action: 'recreate', worker: 'tpu'}, says: 'a worker name'},
  {
    name: 'a worker name that is too long for a document',
    given: {action: 'recreate', worker: `tpu-${'a'.repeat(3000)}-b1-a-0`},
    says: 'worker',
  },
  {
    name: 'a zone that is too long for a document',
    given: {action: 'scale', zones: [`${'a'.repeat(3000)}-b1-a`]},
    says: 'zones.0',
  },
  {name: 'text instead of an object', given: 'pause', says: 'expected an object, got a string'},
];

describe('control messages', () => {
  for (const {name, given, says} of refused)
    it(`a control message with ${name} is refused, and the reason names the key`, () => {
      assert.throws(
        () => parseValue(controlMessage, given, 'It'),
        error =>
          error instanceof Rejected &&
          error.message.startsWith('It is not valid') &&
          error.message.includes(says),
      );
    });

  it('control messages are accepted and refused as their JSON Schema says', () => {
    const fits = new Ajv2020({strict: false}).compile(controlJsonSchema());
    const isTaken = (message: object) => controlMessage.safeParse(message).success;
    const value = fc.constantFrom('my-run', '007', 'tpu-us-central1-a-0', 'tpu', 'node', 0, 2, -1, 1.5, null);
    const zones = fc.constantFrom([], ['us-central1-a'], ['us-central1-a', 'us-central1-a']);
    const message = fc.record(
      {
        action: fc.constantFrom(...'start retry cancel delete rebuild configure scale dance'.split(' ')),
        run: value,
        stream: value,
        worker: value,
        pool: value,
        priority: value,
        budget_usd: value,
        workers_per_zone: value,
        zones: fc.oneof(zones, value),
        provisioning: value,
        if_version: value,
      },
      {requiredKeys: ['action']},
    );
    // Most keys belong to another action: without them more messages are nearly valid.
    const fewer = fc.tuple(message, fc.subarray(['run', 'stream', 'worker', 'pool', 'zones', 'priority']));
    const some = fewer.map(([all, left]) =>
      Object.fromEntries(Object.entries(all).filter(([key]) => key === 'action' || left.includes(key))),
    );
    let taken = 0;
    fc.assert(
      fc.property(fc.oneof(message, some), given => {
        taken += Number(isTaken(given));
        assert.equal(fits(given), isTaken(given), JSON.stringify(given));
      }),
      {numRuns: 3000, examples: [[{action: 'scale', pool: 'tpu'}], [{action: 'configure', run: 'my-run'}]]},
    );
    assert.ok(taken > 10, `${taken} messages were valid`);
  });
});
