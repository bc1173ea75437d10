import {CallerRefused} from '../../contracts/errors.ts';
import type {WorkerRequest} from '../../contracts/messages/schemas.ts';
import {decideFailedBoot} from '../../domain/requests/heard-from.ts';
import {none, ok, type RequestDecision, type WorkerAnswer} from '../../domain/requests/requests.ts';
import {readPool} from '../caches/pool-cache.ts';
import type {Account} from '../calls/services.ts';
import {wake} from '../calls/wake.ts';
import type {Deps} from '../deps.ts';
import {concludeExec} from '../execs/end-exec.ts';
import {storePing} from '../workers/service-proofs.ts';
import type {AgentAction} from './answers.ts';
import {type Answerer, bindHost, checked, inTransaction} from './authenticate.ts';
import {storeVersion} from './checkpoint.ts';
import {endExec, takeExec} from './exec.ts';
import {finishJob} from './finish.ts';
import {heartbeatOfWorker, takeHeartbeat} from './heartbeat.ts';
import {answerLease} from './lease.ts';
import {releaseStream} from './release.ts';
import {answerSecrets} from './secrets.ts';
import {answerToken} from './token.ts';

/** Sender of a request: the account of its token, and the sha256 of the secret of its host. On-tick has no secret. */
export type Sender = {account: Account; secret_sha256: string | undefined};

/**
 * Answers a caller of worker-api: on-tick sends pings, agents of TPUs send everything else. The account proves that an agent of ours is
 * calling, and the secret which one.
 */
export async function answerWorker(deps: Deps, sender: Sender, asked: WorkerRequest): Promise<WorkerAnswer> {
  const allowed = asked.action === 'ping' ? 'control' : 'worker';
  if (sender.account !== allowed)
    throw new CallerRefused(403, `the account ${sender.account} may not ask for ${asked.action}`);
  if (asked.action === 'ping') {
    await storePing(deps);
    return ok({action: 'pong'});
  }
  const {secret_sha256} = sender;
  if (secret_sha256 === undefined)
    throw new CallerRefused(
      403,
      'the header x-gleaner-secret has no secret of a host: send its 64 hexadecimal digits',
    );
  const answerer = ANSWERERS[asked.action] as Answerer<AgentAction>;
  const {answer, complaint, endsExec, sweeps, wakes} = await answerer(deps, {...asked, secret_sha256});
  const {worker, incarnation, host} = asked;
  if (complaint) deps.log('ERROR', complaint, {worker, incarnation, host});
  if (endsExec) await concludeExec(deps, endsExec);
  if (sweeps) await deps.bus.publish('tasks', {task: 'sweep', job: sweeps});
  if (wakes) await wake(deps.bus);
  return answer;
}

const ANSWERERS: {[Action in AgentAction]: Answerer<Action>} = {
  hello: (deps, request) => withHeartbeat(deps.config.heartbeat_s, bindHost(deps, request)),
  lease: answerLease,
  heartbeat: async (deps, request) =>
    withHeartbeat(await heartbeatOfWorker(deps, request), takeHeartbeat(deps, request)),
  'setup-failed': inTransaction('setup-failed', (_deps, _tx, {worker, request, now}) =>
    decideFailedBoot(worker, request, now),
  ),
  release: releaseStream,
  finish: finishJob,
  checkpoint: storeVersion,
  token: answerToken,
  secrets: answerSecrets,
  /** Reads the pool itself, because a cache may be older than the heartbeat. */
  source: checked('source', async (deps, {pool: name}) => {
    const pool = await readPool(deps, name);
    if (!pool) return {answer: none(`there is no pool "${name}"`)};
    const {source_version: version, source, environment} = pool;
    return {answer: ok({action: 'source', version, source, environment, bucket: deps.objects.bucket})};
  }),
  exec: takeExec,
  'exec-end': endExec,
};

/** Adds the interval of the heartbeats to every answer except a refusal. */
async function withHeartbeat(heartbeat_s: number, decision: Promise<RequestDecision>) {
  const {answer, ...rest} = await decision;
  const {status, body} = answer;
  return {...rest, answer: {status, body: status === 200 ? {...body, heartbeat_s} : body}};
}
