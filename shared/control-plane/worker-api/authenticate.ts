/** Checks who sends a request: the document of the worker must have the incarnation, the host and its secret. */
import {hash} from 'node:crypto';
import {isSameText} from '../../contracts/constant-time.ts';
import type {Worker} from '../../domain/records/worker.ts';
import {lostJob} from '../../domain/requests/finish-job.ts';
import {decideHello} from '../../domain/requests/hello.ts';
import {lostStream} from '../../domain/requests/release-stream.ts';
import {
  advise,
  isCurrent,
  none,
  notWantedText,
  type RequestDecision,
  refuse,
  unknownText,
  type WorkerAnswer,
} from '../../domain/requests/requests.ts';
import {hasHost} from '../../domain/worker/hosts.ts';
import type {Store, Transaction} from '../../ports/ports.ts';
import {poolOf} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {workerRecords} from '../documents/documents.ts';
import {isTicketOf} from '../workers/tickets.ts';
import {type AgentAction, type AgentRequest, askerOf, waitFor} from './answers.ts';
import {transact} from './write.ts';

/** Answers to a sender that does not match any document. */
type Rule<Action extends AgentAction> = {
  /** The request as a phrase, for a refusal. */
  task: string;
  /** Answer to an incarnation without a document: the database was lost, or restored from a backup older than the worker. */
  unknown: (
    request: AgentRequest<Action>,
    worker: Worker | undefined,
    deps: Deps,
  ) => WorkerAnswer | Promise<WorkerAnswer>;
  /** Answer to an incarnation that was replaced, or whose node is being deleted. */
  over: (request: AgentRequest<Action>) => WorkerAnswer;
  /** True: an incarnation whose node is being deleted is still served, because it gives its work back. */
  servesLeaving?: true;
  /** True: the handler checks the secret, which may not be bound yet. */
  bindsSecret?: true;
};

const exit = ({worker, incarnation}: AgentRequest) => advise('exit', notWantedText(worker, incarnation));
const nothing = {
  unknown: (request: AgentRequest) => none(unknownText(request)),
  over: ({worker, incarnation}: AgentRequest) => none(notWantedText(worker, incarnation)),
};

const RULES: {[Action in AgentAction]: Rule<Action>} = {
  hello: {
    task: 'bind a secret',
    unknown: request => advise('continue', unknownText(request)),
    over: exit,
    bindsSecret: true,
  },
  lease: {
    task: 'lease work',
    unknown: async (request, worker, deps) => {
      const pool = await poolOf(deps, worker?.pool ?? deps.config.pool.pool);
      return waitFor(pool ?? deps.config.pool, askerOf(request, deps.now()), unknownText(request));
    },
    over: exit,
  },
  heartbeat: {
    task: 'take a heartbeat',
    // The worker stores its present shard, and waits until its node is deleted.
    unknown: request => advise(request.lease ? 'drain' : 'continue', unknownText(request)),
    over: exit,
  },
  'setup-failed': {task: 'report a failed boot', ...nothing},
  release: {task: 'release a stream', unknown: lostStream, over: lostStream, servesLeaving: true},
  finish: {task: 'finish a job', unknown: lostJob, over: lostJob, servesLeaving: true},
  checkpoint: {task: 'store a checkpoint', unknown: lostJob, over: lostJob, servesLeaving: true},
  token: {
    task: 'get a token',
    unknown: nothing.unknown,
    over: ({worker, incarnation}) => advise('stop', notWantedText(worker, incarnation), 409),
    servesLeaving: true,
  },
  secrets: {
    task: 'read secrets',
    unknown: request => advise('stop', unknownText(request), 409),
    over: ({worker, incarnation}) => advise('stop', notWantedText(worker, incarnation), 409),
  },
  source: {task: 'read a source', ...nothing},
  exec: {task: 'take a command', ...nothing},
  'exec-end': {task: 'report a command', ...nothing},
};

export type Answerer<Action extends AgentAction> = (
  deps: Deps,
  request: AgentRequest<Action>,
) => Promise<RequestDecision>;

/** Checks the sender before the transactions of `answer`, which read the worker again. */
export function checked<Action extends AgentAction>(
  action: Action,
  answer: (deps: Deps, worker: Worker, request: AgentRequest<Action>) => Promise<RequestDecision>,
): Answerer<Action> {
  return async (deps, request) => {
    const sender = await authenticate(deps, deps.store, action, request);
    return 'answer' in sender ? sender : answer(deps, sender, request);
  };
}

type Sent<Action extends AgentAction> = {worker: Worker; request: AgentRequest<Action>; now: number};

/** Checks the sender in the transaction of `decide`, which writes the worker that the check has read. */
export function inTransaction<Action extends AgentAction>(
  action: Action,
  decide: (deps: Deps, tx: Transaction, sent: Sent<Action>) => RequestDecision | Promise<RequestDecision>,
): Answerer<Action> {
  return (deps, request) =>
    transact(deps, async (tx, now) => {
      const sender = await authenticate(deps, tx, action, request);
      return 'answer' in sender ? sender : decide(deps, tx, {worker: sender, request, now});
    });
}

/** Reads the worker on whose behalf the request is sent. Returns the answer to a sender that does not match its document. */
async function authenticate<Action extends AgentAction>(
  deps: Deps,
  from: Store | Transaction,
  action: Action,
  request: AgentRequest<Action>,
): Promise<Worker | RequestDecision> {
  const rule: Rule<Action> = RULES[action];
  const worker = await workerRecords.get(from, request.worker);
  if (!hasHost(worker, request.host)) return refuseHost(rule.task, request);
  if (usesForeignIdentity(worker, request)) return refuseImpostor(rule.task, request);
  if (!worker || request.incarnation > worker.incarnation)
    return {answer: await rule.unknown(request, worker, deps)};
  const isServed = rule.servesLeaving
    ? worker.incarnation === request.incarnation
    : isCurrent(worker, request);
  if (!isServed) return {answer: rule.over(request)};
  if (!rule.bindsSecret && !speaksFor(worker, request)) return refuseImpostor(rule.task, request);
  return worker;
}

export const bindHost = inTransaction('hello', ({config}, _, {worker, request, now}) => {
  const hasTicket = () => isTicketOf(config.identity, worker, request.ticket);
  const proof = speaksFor(worker, request) ? 'secret' : hasTicket() ? 'ticket' : 'none';
  return decideHello({worker, proof}, request, now);
});

/** True for the secret of a host: 256 random bits in hexadecimal digits. */
export function isSecret(text: string | undefined): text is string {
  return text !== undefined && /^[0-9a-f]{64}$/.test(text);
}

/** The form in which the worker's document stores the secret of a host. */
export function secretHash(secret: string): string {
  return hash('sha256', secret);
}

/** True if the secret is bound to the host and the incarnation that the request names. A host that has not said hello has none. */
function speaksFor(worker: Worker, {incarnation, host, secret_sha256}: AgentRequest): boolean {
  const bound = worker.host_secrets[host];
  if (bound === undefined || worker.incarnation !== incarnation) return false;
  return isSameText(bound, secret_sha256);
}

/** True if the secret is bound to this worker, but the request names another incarnation or host. */
function usesForeignIdentity(worker: Worker | undefined, request: AgentRequest): boolean {
  if (!worker || speaksFor(worker, request)) return false;
  return Object.values(worker.host_secrets).some(bound => isSameText(bound, request.secret_sha256));
}

/** Refuses a request on behalf of another host. The refusal changes no document. */
function refuseImpostor(task: string, {worker, incarnation, host}: AgentRequest): RequestDecision {
  const who = `host ${host} of ${worker}, incarnation ${incarnation}`;
  return refuse(
    `the secret is not that of ${who}`,
    `Refused to ${task}: the secret of the request is not that of ${who}`,
  );
}

/** A ticket is valid for each host of its node; with a number beyond them, a stolen ticket could bind a second secret. */
function refuseHost(task: string, {worker, host}: AgentRequest): RequestDecision {
  const reason = `the node of ${worker} has no host ${host}`;
  return refuse(reason, `Refused to ${task}: ${reason}`);
}
