import {CallerRefused} from '../../contracts/errors.ts';
import type {WorkerRequest} from '../../contracts/schemas.ts';
import {decideFailedBoot} from '../../domain/worker/heartbeat.ts';
import {ok, type RequestDecision, type WorkerAnswer} from '../../domain/worker/requests.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import type {Account, Deps} from '../deps.ts';
import {concludeExec} from '../execs/end-exec.ts';
import {wake} from '../wake.ts';
import {storePing} from '../workers/service-proofs.ts';
import {type AgentAction, type AgentRequest, withHeartbeat} from './answers.ts';
import {authenticate} from './authenticate.ts';
import {endExec, takeExec} from './exec.ts';
import {finishJob} from './finish.ts';
import {heartbeatOfWorker, takeHeartbeat} from './heartbeat.ts';
import {bindHost} from './hello.ts';
import {answerLease} from './lease.ts';
import {releaseStream} from './release.ts';
import {answerSource} from './source.ts';
import {answerToken} from './token.ts';
import {transact} from './write.ts';

/** Sender of a request: the account of its token, and the sha256 of the secret of its host. On-tick has no secret. */
export type Sender = {account: Account; secret_sha256: string | undefined};

/**
 * Answers a caller of worker-api: on-tick pings, and agents of TPUs ask all else. The account says that an agent of ours speaks. The
 * secret says which one.
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
  const request = {...asked, secret_sha256};
  const {answer, complaint, endsExec, wakes} = await decideRequest(deps, request);
  const {worker, incarnation, host} = request;
  if (complaint) deps.log('ERROR', complaint, {worker, incarnation, host});
  if (endsExec) await concludeExec(deps, endsExec);
  if (wakes) await wake(deps.bus);
  return answer;
}

/** Checks the sender, and then passes the request to its handler. */
async function decideRequest(deps: Deps, request: AgentRequest): Promise<RequestDecision> {
  switch (request.action) {
    case 'hello':
      return withHeartbeat(deps.config.heartbeat_s, inTransaction(deps, 'hello', request, bindHost));
    case 'lease':
      return checked(deps, 'lease', request, answerLease);
    case 'heartbeat': {
      const heartbeat_s = await heartbeatOfWorker(deps, request);
      return withHeartbeat(heartbeat_s, inTransaction(deps, 'heartbeat', request, takeHeartbeat));
    }
    case 'setup-failed':
      return inTransaction(deps, 'setup-failed', request, async (_deps, _tx, worker, failed, now) =>
        decideFailedBoot(worker, failed, now),
      );
    case 'release':
      return checked(deps, 'release', request, releaseStream);
    case 'finish':
      return checked(deps, 'finish', request, finishJob);
    case 'token':
      return checked(deps, 'token', request, answerToken);
    case 'source':
      return checked(deps, 'source', request, answerSource);
    case 'exec':
      return inTransaction(deps, 'exec', request, takeExec);
    case 'exec-end':
      return inTransaction(deps, 'exec-end', request, endExec);
    default:
      return request satisfies never;
  }
}

/** Checks the sender before the transactions of the handler, which read the worker again. */
async function checked<Action extends AgentAction>(
  deps: Deps,
  action: Action,
  request: AgentRequest<Action>,
  handle: (deps: Deps, worker: Worker, request: AgentRequest<Action>) => Promise<RequestDecision>,
): Promise<RequestDecision> {
  const sender = await authenticate(deps, deps.store, action, request);
  return 'answer' in sender ? sender : handle(deps, sender, request);
}

/** Checks the sender in the transaction of the handler, which writes the worker that the check has read. */
function inTransaction<Action extends AgentAction>(
  deps: Deps,
  action: Action,
  request: AgentRequest<Action>,
  decide: (
    deps: Deps,
    tx: Transaction,
    worker: Worker,
    request: AgentRequest<Action>,
    now: number,
  ) => Promise<RequestDecision>,
): Promise<RequestDecision> {
  return transact(deps, async (tx, now) => {
    const sender = await authenticate(deps, tx, action, request);
    return 'answer' in sender ? sender : decide(deps, tx, sender, request, now);
  });
}
