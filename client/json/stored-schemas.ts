/** The schema of each kind of stored document, by its title in docs/inside/firestore.md. */
import type {z} from 'zod';
import {
  attemptRecords,
  controlRecords,
  createsDocument,
  eventRecords,
  execHostRecords,
  execRecords,
  shardRecords,
} from '../../shared/control-plane/documents/documents.ts';
import {task} from '../../shared/control-plane/documents/tasks.ts';
import {spendingDocument} from '../../shared/domain/billing/monthly-spending.ts';
import {noticeDocument, receiverDocument} from '../../shared/domain/notices/notice.ts';
import {jobDocument} from '../../shared/domain/records/job.ts';
import {poolDocument} from '../../shared/domain/records/pool.ts';
import {runDocument} from '../../shared/domain/records/run.ts';
import {streamDocument} from '../../shared/domain/records/stream.ts';
import {workerDocument} from '../../shared/domain/records/worker.ts';
import {zoneDocument} from '../../shared/domain/records/zone.ts';
import {servedDocument} from '../../shared/domain/worker/served-time.ts';

export const STORED_SCHEMAS: Record<string, z.ZodType> = {
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
  '`notices/ID`': noticeDocument,
  '`system/receiver`': receiverDocument,
  '`system/served`': servedDocument,
  '`system/spending`': spendingDocument,
  '`system/creates`': createsDocument,
};
/** The schema of the document at a path. `prices/chips` has no schema: each of its entries is a price. */
export function schemaAt(path: string): z.ZodType | undefined {
  const title = Object.keys(STORED_SCHEMAS).find(each => isOfKind(path, /`([^`]+)`/.exec(each)?.[1] ?? ''));
  return title === undefined ? undefined : STORED_SCHEMAS[title];
}

/** `runs/RUN/streams/STREAM` is the kind of `runs/my-run/streams/000`. */
function isOfKind(path: string, kind: string): boolean {
  return new RegExp(`^${kind.replace(/[A-Z_.]*[A-Z]/g, '[^/]+')}$`).test(path);
}
