/** docs/firestore.md: every stored document, and the meaning of its fields. */
import type {z} from 'zod';
import {
  createsDocument,
  poolDocument,
  runDocument,
  servedDocument,
  spendingDocument,
  streamDocument,
  workerDocument,
  zoneDocument,
} from '../../../shared/control-plane/documents/document-schemas.ts';
import {execHostRecords, execRecords} from '../../../shared/control-plane/documents/exec-documents.ts';
import {poolFields, zoneFields} from '../../../shared/control-plane/documents/fields/fleet.ts';
import {execFields, execHostFields, jobFields} from '../../../shared/control-plane/documents/fields/jobs.ts';
import {
  controlFields,
  createsFields,
  eventFields,
  foldFields,
  servedFields,
  spendingFields,
  taskFields,
} from '../../../shared/control-plane/documents/fields/records.ts';
import {runFields, shardFields, streamFields} from '../../../shared/control-plane/documents/fields/runs.ts';
import {attemptFields, workerFields} from '../../../shared/control-plane/documents/fields/workers.ts';
import {
  attemptRecords,
  controlRecords,
  eventRecords,
  foldRecords,
  shardRecords,
} from '../../../shared/control-plane/documents/history-documents.ts';
import {jobDocument} from '../../../shared/control-plane/documents/job-schema.ts';
import {task} from '../../../shared/control-plane/documents/tasks.ts';
import {row, schemaOf, typeOf} from './types.ts';

type Kind = {path: string; is: string; schema: z.ZodType; fields: Readonly<Record<string, string>>};

/** Every kind of document with a schema. */
export const KINDS: readonly Kind[] = [
  {path: 'runs/RUN', is: 'A run.', schema: runDocument, fields: runFields},
  {
    path: 'runs/RUN/streams/STREAM',
    is: 'A stream: its object, its lease and its checkpoint.',
    schema: streamDocument,
    fields: streamFields,
  },
  {
    path: 'runs/RUN/streams/STREAM/shards/SHARD',
    is: 'A stored shard.',
    schema: shardRecords.schema,
    fields: shardFields,
  },
  {
    path: 'runs/RUN/system/fold',
    is: 'Progress of the result of a run.',
    schema: foldRecords.schema,
    fields: foldFields,
  },
  {path: 'workers/WORKER', is: 'A slot and its TPU.', schema: workerDocument, fields: workerFields},
  {
    path: 'workers/WORKER/attempts/INCARNATION',
    is: 'An ended incarnation of a TPU.',
    schema: attemptRecords.schema,
    fields: attemptFields,
  },
  {path: 'pools/POOL', is: 'A pool of TPUs.', schema: poolDocument, fields: poolFields},
  {
    path: 'zones/ZONE, zones/POOL.ZONE',
    is: 'Recent history of a zone for a pool.',
    schema: zoneDocument,
    fields: zoneFields,
  },
  {
    path: 'jobs/JOB',
    is: 'A job. `GLEANER_JOBS_COLLECTION` names the collection. Unknown fields belong to people and stay.',
    schema: jobDocument,
    fields: jobFields,
  },
  {path: 'execs/EXEC', is: 'A command on hosts.', schema: execRecords.schema, fields: execFields},
  {
    path: 'execs/EXEC/hosts/WORKER.HOST',
    is: 'A command on one host.',
    schema: execHostRecords.schema,
    fields: execHostFields,
  },
  {
    path: 'events/ID',
    is: 'An entry of the timeline. The id is a hash, so the order of ids is no order of time.',
    schema: eventRecords.schema,
    fields: eventFields,
  },
  {
    path: 'control/MESSAGE_ID',
    is: 'The outcome of a control message.',
    schema: controlRecords.schema,
    fields: controlFields,
  },
  {
    path: 'tasks/TASK, tasks/TASK-RUN',
    is: 'Long work of the control plane, page by page.',
    schema: task,
    fields: taskFields,
  },
  {
    path: 'system/served',
    is: 'When messages were delivered, so that a silence of Google counts against no TPU.',
    schema: servedDocument,
    fields: servedFields,
  },
  {path: 'system/spending', is: 'Spending by month.', schema: spendingDocument, fields: spendingFields},
  {path: 'system/creates', is: 'Count of creates.', schema: createsDocument, fields: createsFields},
];

function section({path, is, schema, fields}: Kind): string {
  const {properties = {}} = schemaOf(schema);
  const rows = Object.entries(fields).map(([field, meaning]) => {
    const type = properties[field] ? typeOf(properties[field]) : 'further field';
    return row(`\`${field}\``, type, meaning);
  });
  const title = path
    .split(', ')
    .map(each => `\`${each}\``)
    .join(' or ');
  return [`## ${title}`, '', is, '', '| field | type | meaning |', '|---|---|---|', ...rows].join('\n');
}

export function firestorePage(template: string): string {
  return template.replace('{{documents}}', () => KINDS.map(section).join('\n\n'));
}
