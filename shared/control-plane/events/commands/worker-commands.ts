import {z} from 'zod';
import {workerNameText} from '../../../contracts/messages/schemas.ts';
import {type Decision, decideDelete, decideRecreate} from '../../../domain/commands/commands.ts';
import type {Worker} from '../../../domain/records/worker.ts';
import {workerRecords} from '../../documents/documents.ts';
import {command, conclude} from './command.ts';

type Decide = (name: string, worker: Worker | undefined, published_at: string) => Decision<Worker>;

function workerCommand<Action extends 'recreate' | 'delete'>(action: Action, decide: Decide) {
  return command({
    schema: z.strictObject({action: z.literal(action), worker: workerNameText}),
    decide: async ({tx, published_at}, {worker}) => {
      const current = await workerRecords.get(tx, worker);
      return conclude(decide(worker, current, published_at), next => workerRecords.set(tx, next), {worker});
    },
  });
}

export const recreate = workerCommand('recreate', decideRecreate);
/** `delete` is a reserved word. */
export const deleteWorker = workerCommand('delete', decideDelete);
