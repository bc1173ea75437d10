/** docs/firestore.md has each field of each stored document, with its type and its meaning. */
import assert from 'node:assert/strict';
import type {z} from 'zod';
import {schemaOf, typeOf} from '../../cli/build/reference/types.ts';
import {createsDocument, spendingDocument} from '../../shared/control-plane/documents/documents.ts';
import {execHostRecords, execRecords} from '../../shared/control-plane/documents/exec-documents.ts';
import {
  attemptRecords,
  controlRecords,
  eventRecords,
  shardRecords,
} from '../../shared/control-plane/documents/history-documents.ts';
import {task} from '../../shared/control-plane/documents/tasks.ts';
import {poolDocument} from '../../shared/domain/fleet/pool.ts';
import {jobDocument} from '../../shared/domain/job/job.ts';
import {runDocument} from '../../shared/domain/run/run.ts';
import {streamDocument} from '../../shared/domain/stream/stream.ts';
import {servedDocument} from '../../shared/domain/worker/served-time.ts';
import {workerDocument} from '../../shared/domain/worker/worker.ts';
import {zoneDocument} from '../../shared/domain/zone/placement.ts';
import {readPage} from '../support/doc-blocks.ts';

/** Title of each section with fields, and the schema of its documents. */
const SCHEMAS: Record<string, z.ZodType> = {
  '`runs/RUN`': runDocument,
  '`runs/RUN/streams/STREAM`': streamDocument,
  '`runs/RUN/streams/STREAM/shards/SHARD`': shardRecords.schema,
  '`workers/WORKER`': workerDocument,
  '`workers/WORKER/attempts/INCARNATION`': attemptRecords.schema,
  '`pools/POOL`': poolDocument,
  '`zones/ZONE` or `zones/POOL.ZONE`': zoneDocument,
  '`jobs/JOB`': jobDocument,
  '`execs/EXEC`': execRecords.schema,
  '`execs/EXEC/hosts/WORKER.HOST`': execHostRecords.schema,
  '`events/ID`': eventRecords.schema,
  '`control/MESSAGE_ID`': controlRecords.schema,
  '`tasks/TASK` or `tasks/TASK-RUN`': task,
  '`system/served`': servedDocument,
  '`system/spending`': spendingDocument,
  '`system/creates`': createsDocument,
};

/** A field that no schema checks: only people and commands read it. */
const UNCHECKED = 'further field';

describe('docs/firestore.md', () => {
  const sections = readPage('docs/firestore.md').split(/^## /m);

  for (const [title, schema] of Object.entries(SCHEMAS))
    it(`has each field of ${title} with its type and a meaning`, () => {
      const section = sections.find(text => text.startsWith(`${title}\n`)) ?? assert.fail(`no ## ${title}`);
      const rows = [...section.matchAll(/^\| `(\w+)` \| (.+?) \| (.+) \|$/gm)];
      const found = new Map(rows.map(([, field, type]) => [field, type]));
      const {properties = {}} = schemaOf(schema);
      for (const [field, property] of Object.entries(properties))
        assert.equal(found.get(field), typeOf(property), `the type of ${field}`);
      for (const [, field = '', type, meaning = ''] of rows) {
        assert.ok(field in properties || type === UNCHECKED, `${field} is no field`);
        assert.match(meaning, /[.]$/);
      }
    });
});
