import assert from 'node:assert/strict';
import type {z} from 'zod';
import {Rejected} from '../../../../shared/contracts/errors.ts';
import {parseJson, parseValue, shardMetadata} from '../../../../shared/contracts/messages/schemas.ts';
import {runSpecInput} from '../../../../shared/contracts/spec/spec.ts';
import {controlMessage} from '../../../../shared/control-plane/events/commands/table.ts';
import {shardMetadataOf} from '../../../world/builders.ts';

describe('reasons of a rejection', () => {
  const reasons: {schema: z.ZodType; given: unknown; is: string}[] = [
    {schema: controlMessage, given: {action: 'stop'}, is: 'run is missing'},
    {schema: controlMessage, given: {action: 'pause', run: 'r', force: 1}, is: 'there is no "force"'},
    {
      schema: controlMessage,
      given: {action: 'retry', run: 'r', stream: '7'},
      is: 'stream: expected 3 to 9 digits such as 007, but it is "7"',
    },
    {
      schema: shardMetadata,
      given: {...shardMetadataOf(), samples: 'ten', spec_hash: 'abc'},
      is: 'samples: expected 1 to 19 digits, but it is "ten"; spec_hash: expected 64 hexadecimal digits, but it is "abc"',
    },
    {
      schema: controlMessage,
      given: {action: 'scale', zones: [], budget_usd: 0},
      is: 'zones: expected at least 1 entry; budget_usd: expected more than 0, but it is 0',
    },
    {schema: runSpecInput, given: {sites: 'resid_post'}, is: 'sites: expected a list, got a string'},
    {schema: runSpecInput, given: {seed: 0.5}, is: 'seed: expected a whole number, got 0.5'},
    {
      schema: runSpecInput,
      given: {max_seq_length: 1e17},
      is: 'max_seq_length: expected at most 131072, but it is 100000000000000000',
    },
    {
      schema: runSpecInput,
      given: {over_long: 'cut'},
      is: 'over_long: expected one of "reject", "truncate", "chunk", "pack", but it is "cut"',
    },
    {schema: shardMetadata, given: {}, is: 'schema is missing: Gleaner did not write it'},
    {
      schema: shardMetadata,
      given: {...shardMetadataOf(), schema: 'gleaner/2', samples: 'ten'},
      is: 'schema: expected "gleaner/1", but it is "gleaner/2"',
    },
    {
      schema: controlMessage,
      given: {action: 'dance'},
      is: 'action: expected one of "start", "pause", "stop", "resume", "retry", "cancel", "recreate", "delete", "rebuild", "submit", "clear", "configure", "scale", "update", "keep", "pool", "correct", but it is "dance"',
    },
  ];
  for (const {schema, given, is} of reasons)
    it(`${JSON.stringify(given).slice(0, 80)} is refused with one plain reason for each mistake`, () =>
      assert.throws(() => parseValue(schema, given, 'It'), {message: `It is not valid: ${is}`}));

  for (const text of ['', '{', 'pause', '\u{1F600}', '{"a":\u{1F600}}', '\u0000'])
    it(`${JSON.stringify(text)} is refused as no JSON, with a reason that can be stored`, () => {
      assert.throws(
        () => parseJson(controlMessage, text, 'The message'),
        error =>
          error instanceof Rejected &&
          /^The message is not JSON/.test(error.message) &&
          error.message.isWellFormed(),
      );
    });
});
