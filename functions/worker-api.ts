import type {Request, Response} from '@google-cloud/functions-framework';
import {CallerRefused, NotUnderstood, Rejected} from '../shared/contracts/errors.ts';
import {requestProblem} from '../shared/contracts/request-limits.ts';
import {parseValue, workerRequest} from '../shared/contracts/schemas.ts';
import type {Deps} from '../shared/control-plane/deps.ts';
import {answerWorker} from '../shared/control-plane/worker-api/answer-worker.ts';
import {isSecret, secretHash} from '../shared/control-plane/worker-api/authenticate.ts';

/** Header with the secret of the host that sends the request. */
const SECRET_HEADER = 'x-gleaner-secret';

/** Answers agents on TPU VMs: hello, lease, heartbeat, release. Answers the pings of on-tick. The token and the secret say who asks. */
export async function workerApi(deps: Deps, request: Request, response: Response): Promise<void> {
  try {
    const unread = requestProblem(request);
    if (unread) {
      response.status(unread.status).json({error: unread.error});
      return;
    }
    // IAM would check this header alone, and leave a forged token in the other one.
    if (request.get('x-serverless-authorization') !== undefined)
      throw new CallerRefused(401, 'send the identity token in the header authorization');
    const account = await deps.accountOf(request.get('authorization'));
    const asked = parseValue(workerRequest, request.body, 'The request');
    const secret = request.get(SECRET_HEADER);
    const sender = {account, secret_sha256: isSecret(secret) ? secretHash(secret) : undefined};
    const {status, body} = await answerWorker(deps, sender, asked);
    response.status(status).json(body);
  } catch (error) {
    if (error instanceof CallerRefused) {
      deps.log(error.status === 403 ? 'ERROR' : 'WARNING', `Refused a caller: ${error.message}`);
      response.status(error.status).json({error: error.message});
    } else if (error instanceof NotUnderstood) {
      // Another release may understand the document: the agent goes on with its work, and asks again.
      deps.log('ERROR', error.message, {signal: 'document-left-alone'});
      response.status(503).json({error: error.message});
    } else if (error instanceof Rejected) response.status(400).json({error: error.message});
    else throw error;
  }
}
