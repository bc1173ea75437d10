/** docs/inside/security.md names every value that a worker reports, with what bounds it. */
import assert from 'node:assert/strict';
import {schemaOf} from '../../client/json/types.ts';
import {shardMetadata, workerRequest} from '../../shared/contracts/messages/schemas.ts';
import {readPage} from '../support/docs/doc-blocks.ts';

type Schema = ReturnType<typeof schemaOf>;

function* valuesOf(schema: Schema, path: string[] = []): Generator<string> {
  const among = schema.anyOf ?? schema.oneOf;
  if (among) for (const one of among) yield* valuesOf(one, path);
  else if (schema.properties)
    for (const [name, inner] of Object.entries(schema.properties)) yield* valuesOf(inner, [...path, name]);
  else if (schema.items) yield* valuesOf(schema.items, path);
  else if (schema.type !== 'null') yield path.join('.');
}

describe('docs/inside/security.md', () => {
  it('has a bound for every value of a request of a worker, and of the metadata of a shard', () => {
    const [, section = ''] =
      /## What a worker reports\n([\s\S]*?)\n## /.exec(readPage('docs/inside/security.md')) ?? [];
    const rows = [...section.matchAll(/^\| (`[^|]+`) \| [^|]+ \|$/gm)].map(([, names = '']) => names);
    const named = rows.flatMap(names => [...names.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name));
    const requests = [...valuesOf(schemaOf(workerRequest, 'input'))].filter(name => name !== 'action');
    const metadata = [...valuesOf(schemaOf(shardMetadata, 'input'), ['shard'])];
    assert.deepEqual(named.toSorted(), [...new Set([...requests, ...metadata])].toSorted());
  });
});
