import {Rejected} from '../../contracts/errors.ts';
import {MAX_RESULT_BYTES} from '../../contracts/messages/job-schemas.ts';
import {type JobEnd, processesOf, processOf} from '../../domain/job/lifecycle.ts';
import {jobFolder, processFolder} from '../../domain/names.ts';
import type {Job} from '../../domain/records/job.ts';
import {decideFinish} from '../../domain/requests/finish-job.ts';
import type {Deps} from '../deps.ts';
import {workerRecords} from '../documents/documents.ts';
import {jobRecords, membersOf} from '../documents/job-documents.ts';
import type {AgentRequest} from './answers.ts';
import {checked} from './authenticate.ts';
import {transact} from './write.ts';

const RESULT = 'result.txt';

export const finishJob = checked('finish', (deps, _, request) =>
  transact(deps, async (tx, now) => {
    const job = await jobRecords.get(deps, tx, request.lease.job);
    const worker = await workerRecords.get(tx, request.worker);
    const others = job ? await membersOf(deps, tx, job, request.worker) : [];
    return decideFinish({job, worker, others}, request, endOf(deps, request, job), now);
  }),
);

function endOf(deps: Deps, request: AgentRequest<'finish'>, job: Job | undefined): JobEnd {
  const {lease, outcome, cause, error, exit_code, result, result_object, has_artifacts, ran} = request;
  if (Buffer.byteLength(result ?? '') > MAX_RESULT_BYTES)
    throw new Rejected(
      `the result has more than ${MAX_RESULT_BYTES} bytes: store it as ${RESULT} in the bucket`,
    );
  const folder = jobFolder(lease.job, lease.epoch);
  const held = job?.lease;
  const own =
    held && processesOf(held) > 1
      ? processFolder(lease.job, lease.epoch, processOf(held, request, request.host))
      : folder;
  if (result_object !== null && result_object !== `${folder}${RESULT}`)
    throw new Rejected(`the result of this attempt is stored as ${folder}${RESULT}, not as another object`);
  const at = (name: string) => `gs://${deps.objects.bucket}/${name}`;
  return {
    outcome,
    cause: outcome === 'completed' ? null : (cause ?? (outcome === 'failed' ? 'exit' : outcome)),
    error: outcome === 'completed' ? null : error,
    ...{exit_code, result, ran},
    result_path: result_object === null ? null : at(`${folder}${RESULT}`),
    artifacts_path: has_artifacts ? at(`${own}artifacts/`) : null,
  };
}
