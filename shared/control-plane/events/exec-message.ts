import {Rejected} from '../../contracts/errors.ts';
import {execMessage} from '../../contracts/job-schemas.ts';
import {pushId, rawText, readPush} from '../../contracts/push.ts';
import {rejectRepeatedKey} from '../../contracts/repeated-key.ts';
import {parseJson} from '../../contracts/schemas.ts';
import type {Deps} from '../deps.ts';
import {startExec} from '../execs/start-exec.ts';
import {type Published, recordPath, recordRejected} from './message-records.ts';

/**
 * Starts the command of a message on topic `exec` once. Its document says what becomes of it. A malformed message, and
 * a message whose id is taken, make no document: they are recorded like rejected control messages.
 */
export async function handleExecMessage(deps: Deps, event: unknown): Promise<void> {
  const message_id = pushId(event);
  let published: Published = {text: rawText(event), published_at: undefined};
  try {
    published = readPush(event, 'The exec event');
    if (published.text === '')
      throw new Rejected('The message has no data: publish the command as its data, in JSON');
    const message = parseJson(execMessage, published.text, 'The message');
    rejectRepeatedKey(published.text, 'The message');
    const reason = await startExec(deps, message, message_id);
    if (reason !== undefined) throw new Rejected(reason);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    await recordRejected(deps, recordPath(message_id), published, error.message);
    deps.log('WARNING', error.message, {message_id});
  }
}
