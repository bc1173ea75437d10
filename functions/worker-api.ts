import type {Request, Response} from '@google-cloud/functions-framework';
import {Rejected} from '../shared/contracts/errors.ts';
import {parseValue, workerRequest} from '../shared/contracts/schemas.ts';
import {answerWorker} from '../shared/control-plane/handlers/worker-request.ts';
import type {Deps} from '../shared/control-plane/state/deps.ts';

/** Answers agents on TPU VMs: lease, heartbeat, release. Cloud Run admits only the service accounts of workers and of on-tick. */
export async function workerApi(deps: Deps, request: Request, response: Response): Promise<void> {
  try {
    const {status, body} = await answerWorker(deps, parseValue(workerRequest, request.body, 'The request'));
    response.status(status).json(body);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    response.status(400).json({error: error.message});
  }
}
