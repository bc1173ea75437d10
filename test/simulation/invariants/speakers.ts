/** Checks who speaks: a worker speaks for itself alone, and a host that is bound is never refused. */
import {secretHash} from '../../../shared/control-plane/worker-api/authenticate.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {Check, type WorkerRequest} from './violations.ts';

type Secrets = {[host: string]: string};

export class Speakers extends Check {
  /** A forged request changes nothing. The event of a second claim is for people. */
  onCommit(path: string): void {
    const {forged} = this.violations;
    if (forged !== undefined && !path.startsWith('events/'))
      this.breach(`a forged ${forged?.action} in the name of ${forged?.worker} changed ${path}`);
  }

  /** A secret stays with its host for the life of the incarnation, and no longer. */
  onWorker(id: string, before: Document | undefined, after: Document): void {
    const [was, is] = [before?.host_secrets ?? {}, after.host_secrets] as [Secrets, Secrets];
    const isReborn = before?.incarnation !== after.incarnation;
    const isKept = Object.entries(was).every(([host, secret]) => is[host] === secret);
    const isNew = Object.keys(is).length > Object.keys(was).length;
    if (!(isReborn ? Object.keys(is).length === 0 : isKept))
      this.breach(`${id} had the secrets ${JSON.stringify(was)} and has ${JSON.stringify(is)}`);
    if (isNew && this.violations.request?.action !== 'hello')
      this.breach(`a ${this.violations.request?.action} bound a secret to ${id}`);
    if (isNew) this.context.see('a host is bound');
  }

  onAnswer(
    request: WorkerRequest,
    secret: string,
    isForged: boolean,
    status: number,
    answer: Document,
  ): void {
    if (status === 403)
      this.context.see(`a ${isForged ? 'forged' : 'true'} request is refused: ${request.action}`);
    const worker = this.context.store.peek(paths.worker(request.worker));
    const secrets = worker?.host_secrets as Secrets | undefined;
    const isBound =
      worker?.incarnation === request.incarnation && secrets?.[request.host ?? 0] === secretHash(secret);
    if (status === 403 && isBound)
      this.breach(`${request.worker} was refused a ${request.action} with its own secret`);
    if (isForged && (answer.action === 'work' || answer.action === 'job'))
      this.breach(`a forged lease in the name of ${request.worker} was granted`);
  }
}
