import {CallerRefused} from '../../contracts/errors.ts';
import type {WorkerRequest} from '../../contracts/schemas.ts';
import type {Account, Deps} from '../deps.ts';
import {storePing} from '../workers/service-proofs.ts';
import {ok, type WorkerAnswer} from './answers.ts';
import {reportExec, takeExec} from './exec.ts';
import {finishJob} from './finish.ts';
import {handleHeartbeat} from './heartbeat.ts';
import {bindHost} from './hello.ts';
import {answerLease} from './lease.ts';
import {releaseStream} from './release.ts';
import {answerSource} from './source.ts';

/** Sender of a request: the account of its token, and the sha256 of the secret of its host. On-tick has no secret. */
export type Sender = {account: Account; secret_sha256: string | undefined};

/**
 * Answers a caller of worker-api: on-tick pings, and agents of TPUs ask all else. The account says that an agent of ours speaks. The
 * secret says which one, and each handler compares it with the document of the worker that the request names.
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
  switch (asked.action) {
    case 'hello':
      return bindHost(deps, {...asked, secret_sha256});
    case 'lease':
      return answerLease(deps, {...asked, secret_sha256});
    case 'heartbeat':
      return handleHeartbeat(deps, {...asked, secret_sha256});
    case 'release':
      return releaseStream(deps, {...asked, secret_sha256});
    case 'finish':
      return finishJob(deps, {...asked, secret_sha256});
    case 'source':
      return answerSource(deps, {...asked, secret_sha256});
    case 'exec':
      return takeExec(deps, {...asked, secret_sha256});
    case 'exec-end':
      return reportExec(deps, {...asked, secret_sha256});
    default:
      return asked satisfies never;
  }
}
