import type {Request, Response} from '@google-cloud/functions-framework';
import {CallerRefused} from '../shared/contracts/errors.ts';
import {parseValue, workerRequest} from '../shared/contracts/messages/schemas.ts';
import {requestProblem} from '../shared/contracts/request-limits.ts';
import type {Deps} from '../shared/control-plane/deps.ts';
import {answerWorker} from '../shared/control-plane/worker-api/answer-worker.ts';
import {refusalOf} from '../shared/control-plane/worker-api/answers.ts';
import {isSecret, secretHash} from '../shared/control-plane/worker-api/authenticate.ts';

/** Header with the secret of the host that sends the request. */
const SECRET_HEADER = 'x-gleaner-secret';

/** Answers agents on TPU VMs (hello, lease, heartbeat, release) and the pings of on-tick. The token and the secret identify the sender. */
export async function workerApi(deps: Deps, request: Request, response: Response): Promise<void> {
  try {
    const unread = requestProblem(request);
    if (unread) {
      response.status(unread.status).json({error: unread.error});
      return;
    }
    // IAM would check only this header and ignore a forged token in the other one.
    if (request.get('x-serverless-authorization') !== undefined)
      throw new CallerRefused(401, 'send the identity token in the header authorization');
    const account = await deps.accountOf(request.get('authorization'));
    const asked = parseValue(workerRequest, request.body, 'The request');
    const secret = request.get(SECRET_HEADER);
    const sender = {account, secret_sha256: isSecret(secret) ? secretHash(secret) : undefined};
    const {status, body} = await answerWorker(deps, sender, asked);
    response.status(status).json(body);
  } catch (error) {
    const refusal = refusalOf(deps, error);
    if (!refusal) throw error;
    response.status(refusal.status).json(refusal.body);
  }
}
