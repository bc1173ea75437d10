/** Messages about several TPUs, each with its own outcome. */
import {forEachConcurrently} from '../../shared/control-plane/concurrency.ts';
import type {Cloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {outcomeOf, publish, publishLine} from '../cloud/send-message.ts';
import {counted} from '../terminal/format.ts';
import {print, printJson, printText} from '../terminal/output.ts';

export type TpuMessage = {action: 'recreate' | 'delete'; worker: string};
export type TpuOutcome = {tpu: string; outcome: string; reason: string};

/** Messages that wait for their outcome at once. */
const AT_ONCE = 8;

/** Publishes the messages and waits until each is applied or rejected. Exit code 1: a message was rejected. */
export async function sendEach(
  cloud: Cloud,
  messages: readonly TpuMessage[],
  {json}: CloudOptions,
): Promise<void> {
  const outcomes = new Map<string, TpuOutcome>();
  const sendOne = async (message: TpuMessage) => {
    const {outcome, reason} = await outcomeOf(cloud.store, await publish(cloud, 'control', message));
    outcomes.set(message.worker, {tpu: message.worker, outcome, reason});
    if (!json) printText([outcome === 'applied' ? reason : `${message.worker}: rejected: ${reason}`]);
  };
  await forEachConcurrently(messages, sendOne, AT_ONCE);
  const results = messages.flatMap(({worker}) => outcomes.get(worker) ?? []);
  const rejected = results.filter(({outcome}) => outcome !== 'applied').length;
  if (json) printJson<'tpus delete'>({results});
  else if (rejected > 0) printText([`${counted(rejected, 'message')} of ${results.length} rejected`]);
  if (rejected > 0) process.exitCode = 1;
}

/** Prints the command of gcloud for each message. */
export function printCommands(
  {connection}: Cloud,
  messages: readonly TpuMessage[],
  {json}: CloudOptions,
): void {
  const commands = messages.map(message => publishLine(connection, 'control', message));
  print<'tpus delete'>(json, {commands}, commands);
}
