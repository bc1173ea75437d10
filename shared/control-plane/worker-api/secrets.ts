/** Secrets for the holder of a lease: those of its job, the hub's token for a stream; without a lease, git's token for a host. */
import type {Worker} from '../../domain/records/worker.ts';
import {advise, none, ok} from '../../domain/requests/requests.ts';
import {holds} from '../../domain/stream/lease.ts';
import type {Deps} from '../deps.ts';
import {streamRecords} from '../documents/documents.ts';
import {jobRecords} from '../documents/job-documents.ts';
import type {AgentRequest} from './answers.ts';
import {checked} from './authenticate.ts';

/** Name in the answer, the resource of Secret Manager, and the setting that names it. */
type Wanted = {as: string; name: string | undefined; setting: string; isToken?: true};

/** Reads the secrets anew for each request; nothing of them is stored. A problem that stays is the reason of an answer without them. */
export const answerSecrets = checked('secrets', async (deps, worker, request) => {
  const wanted = await wantedBy(deps, worker, request);
  if (!wanted) return {answer: advise('stop', `${worker.name} does not hold this lease any more`, 409)};
  const secrets: Record<string, string> = {};
  for (const {as, name, setting, isToken} of wanted) {
    if (name === undefined) return {answer: none(`the secret of ${as} is not in ${setting}: add it there`)};
    const read = await deps.secrets.read(name, setting);
    if ('problem' in read) return {answer: none(read.problem)};
    if (isToken && !/^[\x21-\x7e]+$/.test(read.text.trim()))
      return {
        answer: none(`the secret ${name} is not one word of printable ASCII: store the token alone in it`),
      };
    secrets[as] = isToken ? read.text.trim() : read.text;
  }
  return {answer: ok({action: 'secrets', secrets})};
});

/** Undefined: the documents do not say that the worker holds the lease. */
async function wantedBy(
  deps: Deps,
  {name: worker, incarnation}: Worker,
  {lease}: AgentRequest<'secrets'>,
): Promise<Wanted[] | undefined> {
  const {hub, git, jobs} = deps.config.secrets;
  const token = (as: string, name: string | undefined, setting: string): Wanted[] =>
    name === undefined ? [] : [{as, name, setting, isToken: true}];
  if (lease === null) return token('git', git, 'git_token_secret');
  const claim = {worker, incarnation, epoch: lease.epoch};
  if ('job' in lease) {
    const job = await jobRecords.get(deps, deps.store, lease.job);
    if (!job || !holds(job, claim)) return undefined;
    return Object.entries(job.secrets ?? {}).map(([as, name]) => ({
      ...{as, name: Object.hasOwn(jobs, name) ? jobs[name] : undefined},
      setting: 'job_secrets',
    }));
  }
  const stream = await streamRecords.get(deps.store, lease.run, lease.stream);
  return stream && holds(stream, claim) ? token('hub', hub, 'hf_token_secret') : undefined;
}
