import {decideCheckpoint} from '../../domain/requests/checkpoint.ts';
import {jobRecords} from '../documents/job-documents.ts';
import {checked} from './authenticate.ts';
import {transact} from './write.ts';

export const storeVersion = checked('checkpoint', (deps, _, request) =>
  transact(deps, async (tx, now) =>
    decideCheckpoint(await jobRecords.get(deps, tx, request.lease.job), request, now),
  ),
);
