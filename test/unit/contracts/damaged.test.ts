/** Texts that people write and documents that people edit, with damage: a value, or a refusal. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {NotUnderstood, Rejected} from '../../../shared/contracts/errors.ts';
import {parseJson} from '../../../shared/contracts/messages/schemas.ts';
import {manifest, manifestText} from '../../../shared/contracts/spec/manifest.ts';
import {configProblem} from '../../../shared/contracts/spec/model-config.ts';
import {parseRunSpec} from '../../../shared/contracts/spec/spec.ts';
import {runRecords, streamRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {controlMessage} from '../../../shared/control-plane/events/commands/table.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {damaged} from '../../support/machine/mutations.ts';
import {aRun, aStream, aWorker} from '../../world/builders.ts';
import {complete} from './spec-cases.ts';

const TEXTS: {name: string; text: string; parse: (text: string) => unknown}[] = [
  {
    name: 'run.json',
    text: '{"model": "tiny", "layers": [0, 1], "record": {"field": "text"}, "budget_usd": 5, "moments": {"layers": "0-1"}, "features": [{"name": "a", "weights": "b/c", "path": "{layer}"}]}',
    parse: text => parseRunSpec(text, 'run.json'),
  },
  {
    name: 'a manifest',
    text: manifestText({
      ...{run: 'r', spec: {seed: 1}, spec_hash: 'a'.repeat(64)},
      placement: complete({}).placement,
    }),
    parse: text => parseJson(manifest, text, 'manifest.json'),
  },
  {
    name: 'a control message',
    text: '{"action": "configure", "run": "my-run", "budget_usd": 12.5, "priority": 3}',
    parse: text => parseJson(controlMessage, text, 'The message'),
  },
  {
    name: 'config.json',
    text: '{"model_type": "llama", "num_hidden_layers": 24, "architectures": ["LlamaForCausalLM"]}',
    parse: text => configProblem(text, {model: 'gs://b/m', layers: '0-23'}),
  },
];

describe('a damaged text', () => {
  for (const {name, text, parse} of TEXTS)
    it(`is a value or refused in a few sentences: ${name}`, () => {
      parse(text);
      fc.assert(
        fc.property(damaged(Buffer.from(text)), bytes => {
          try {
            parse(bytes.toString('utf8'));
          } catch (error) {
            assert.ok(error instanceof Rejected, (error as Error).stack);
            assert.ok(error.message.length < 5000, error.message);
          }
        }),
        {numRuns: 400},
      );
    });
});

describe('a document that a person edited', () => {
  const documents: {name: string; data: object; parse: (data: Document) => unknown}[] = [
    {name: 'a run', data: aRun(), parse: data => runRecords.parse('runs/my-run', data)},
    {name: 'a stream', data: aStream(), parse: data => streamRecords.parse('runs/my-run/streams/007', data)},
    {name: 'a worker', data: aWorker(), parse: data => workerRecords.parse('workers/w', data)},
  ];
  for (const {name, data, parse} of documents)
    it(`is understood or refused with its path: ${name}`, () => {
      parse(structuredClone(data) as Document);
      const fields = Object.keys(data);
      const changes = fc.dictionary(fc.constantFrom(...fields), fc.anything({withBigInt: true, maxDepth: 3}));
      let left = 0;
      fc.assert(
        fc.property(changes, fc.subarray(fields), (changed, removed) => {
          const edited = {...structuredClone(data), ...changed} as Document;
          for (const field of removed.slice(0, 2)) delete edited[field];
          try {
            parse(edited);
          } catch (error) {
            left++;
            assert.ok(error instanceof NotUnderstood, (error as Error).stack);
            assert.ok(error.message.length < 5000, error.message);
          }
        }),
        {numRuns: 400},
      );
      assert.ok(left > 0);
    });
});
