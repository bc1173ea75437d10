import {z} from 'zod';
import {workerNameText} from '../../../contracts/messages/schemas.ts';
import {decideRecreate} from '../../../domain/commands/commands.ts';
import {workerRecords} from '../../documents/documents.ts';
import {command, conclude} from './command.ts';

export const recreate = command({
  schema: z.strictObject({action: z.literal('recreate'), worker: workerNameText}),
  decide: async ({tx, published_at}, {worker}) => {
    const decision = decideRecreate(worker, await workerRecords.get(tx, worker), published_at);
    return conclude(decision, next => workerRecords.set(tx, next), {worker});
  },
});
