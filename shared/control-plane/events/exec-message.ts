import {Rejected} from '../../contracts/errors.ts';
import {execMessage} from '../../contracts/job-schemas.ts';
import type {Deps} from '../deps.ts';
import {startExec} from '../execs/start-exec.ts';
import {handleMessage} from './message-records.ts';

/**
 * Starts the command of a message on topic `exec` once. Its document says what becomes of it. A malformed message, and
 * a message whose id is taken, make no document: they are recorded like rejected control messages.
 */
export async function handleExecMessage(deps: Deps, event: unknown): Promise<void> {
  await handleMessage(deps, event, {topic: 'exec', schema: execMessage}, async (message, message_id) => {
    const reason = await startExec(deps, message, message_id);
    if (reason !== undefined) throw new Rejected(reason);
  });
}
