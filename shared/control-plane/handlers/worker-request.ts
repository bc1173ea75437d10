import type {WorkerRequest} from '../../contracts/schemas.ts';
import type {Deps} from '../state/deps.ts';
import {grantLease} from '../streams/grant-lease.ts';
import {handleHeartbeat} from '../streams/heartbeat.ts';
import {releaseStream} from '../streams/release-stream.ts';
import {ok, type WorkerAnswer} from '../streams/worker-answers.ts';
import {storePing} from '../workers/service-proofs.ts';

/** Answers the agent of a TPU. A request counts only if it comes from the current incarnation of the slot. */
export async function answerWorker(deps: Deps, request: WorkerRequest): Promise<WorkerAnswer> {
  switch (request.action) {
    case 'lease':
      return grantLease(deps, request);
    case 'heartbeat':
      return handleHeartbeat(deps, request);
    case 'release':
      return releaseStream(deps, request);
    case 'ping':
      await storePing(deps);
      return ok({action: 'pong'});
    default:
      return request satisfies never;
  }
}
