/** Messages of a command: their publication, their recorded outcome, and the command of gcloud that publishes the same. */
import {setTimeout as sleep} from 'node:timers/promises';
import {jsonText} from '../../shared/contracts/printable.ts';
import {nameIn} from '../../shared/domain/deployment.ts';
import {paths} from '../../shared/domain/names.ts';
import {publishProblem} from '../../shared/google/bus.ts';
import {withRetries} from '../../shared/google/retry.ts';
import type {Store} from '../../shared/ports/ports.ts';
import type {CloudOptions} from '../connection/connect.ts';
import type {Connection} from '../connection/connection.ts';
import {GoogleError, googleOf} from '../google/api.ts';
import type {Sending} from '../json/control.ts';
import {CliError} from '../text/errors.ts';
import {print, quoted} from '../text/output.ts';
import {type Cloud, withCloud} from './cloud.ts';
import {unknownRun} from './fleet.ts';

export const POLL_MS = 250;
const WAIT_S = 600;
/** Limits of a publish with its repeats. */
const RETRIES = {attempts: 5, first_wait_ms: 200, longest_wait_ms: 2000, give_up_ms: 10_000};

export type Topic = 'control' | 'exec';
export type Outcome = {outcome: string; reason: string};

export function publishLine(
  {deployment, project}: Pick<Connection, 'deployment' | 'project'>,
  topic: Topic,
  message: object,
): string {
  return `gcloud pubsub topics publish ${nameIn(deployment, topic)} --message=${quoted(jsonText(message))} --project=${quoted(project)}`;
}

export function publish(cloud: Cloud, topic: Topic, message: object): Promise<string> {
  return publishText(cloud, topic, JSON.stringify(message));
}

/** Publishes any text and returns the id of its message. Pub/Sub's client takes longer to load than this call takes. */
export async function publishText({connection}: Cloud, topic: Topic, text: string): Promise<string> {
  const {project, deployment} = connection;
  const name = nameIn(deployment, topic);
  const api = googleOf(connection);
  const address = `pubsub.googleapis.com/v1/projects/${project}/topics/${name}:publish`;
  const messages = [{data: Buffer.from(text).toString('base64')}];
  const post = () => api.call('POST', address, {messages}).catch(throwReason);
  try {
    return messageIdOf(await withRetries(RETRIES, post));
  } catch (cause) {
    throw new CliError(publishProblem(name, cause), {cause});
  }
}

/** Throws the reason alone, because the caller says what failed. */
function throwReason(error: Error): never {
  throw error instanceof GoogleError ? Object.assign(new Error(error.reason), {code: error.code}) : error;
}

function messageIdOf({messageIds}: {messageIds?: unknown}): string {
  const [id] = Array.isArray(messageIds) ? messageIds : [];
  if (typeof id !== 'string') throw new Error('the answer of Pub/Sub has no id of a message');
  return id;
}

/** Publishes a message on topic control, waits until it is applied, and returns the reason. Throws `CliError` for a rejected one. */
export async function apply(cloud: Cloud, message: object): Promise<string> {
  const {outcome, reason} = await outcomeOf(cloud.store, await publish(cloud, 'control', message));
  if (outcome !== 'applied') throw new CliError(`The message was rejected: ${reason}`);
  return reason;
}

/** Publishes a control message, waits until it is applied, and prints its effect; or prints the command of gcloud. */
export async function send(message: object, options: CloudOptions): Promise<void> {
  await withCloud(options, cloud => sendTo(cloud, message, options));
}

/** A rejection of a message about an unknown run names similar runs. */
export async function sendTo(
  cloud: Cloud,
  message: object & {run?: string},
  {json, dry_run}: CloudOptions,
): Promise<void> {
  const command = publishLine(cloud.connection, 'control', message);
  if (dry_run) return print<Sending>(json, {command}, [command]);
  const done = await apply(cloud, message).catch(async (error: Error) => {
    const {run} = message;
    const isUnknown = run !== undefined && !(await cloud.store.get(paths.run(run)));
    throw isUnknown ? await unknownRun(cloud.store, run) : error;
  });
  print<Sending>(json, {done}, [done]);
}

export async function outcomeOf(
  store: Store,
  id: string,
  wait_s = WAIT_S,
  clock = {now: Date.now, sleep: (seconds: number): Promise<void> => sleep(seconds * 1000)},
): Promise<Outcome> {
  for (const end = clock.now() + wait_s * 1000; clock.now() < end; await clock.sleep(POLL_MS / 1000)) {
    const outcome = await readOutcome(store, id);
    if (outcome) return outcome;
  }
  throw new CliError(
    `The control plane has not answered message ${id} for ${wait_s} s: read the log of the function on-control`,
  );
}

export async function readOutcome(store: Store, id: string): Promise<Outcome | undefined> {
  const record = await store.get(paths.control(id));
  return record && {outcome: String(record.outcome), reason: String(record.reason)};
}
