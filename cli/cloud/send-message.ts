/** Messages of a command: their publication, their recorded outcome, and the command of gcloud that publishes the same. */
import {setTimeout as sleep} from 'node:timers/promises';
import {jsonText} from '../../shared/contracts/printable.ts';
import {nameIn} from '../../shared/domain/deployment.ts';
import {paths} from '../../shared/domain/names.ts';
import {openBus} from '../../shared/google/bus.ts';
import {openObjects} from '../../shared/google/objects.ts';
import type {Document, Objects, Store} from '../../shared/ports.ts';
import {DEFAULT_DIR} from '../local/defaults.ts';
import {CliError} from '../terminal/errors.ts';
import {print, quoted} from '../terminal/output.ts';
import {connect, storeOf, type Where} from './connect.ts';
import type {Connection} from './connection.ts';

export const POLL_MS = 250;
/** Limit of waiting for the record of a message. */
const WAIT_S = 600;

export type Topic = 'control' | 'exec';
export type Outcome = {outcome: string; reason: string};

/** Cloud of a command with its store and its bucket, and the folder that the command line names. */
export type Cloud = {
  connection: Connection;
  store: Store;
  objects: Objects;
  /** Collection of the documents of jobs. */
  jobs: string;
  dir: string;
};

/** Opens the cloud of a command, and closes it at the end of `work`. */
export async function withCloud<T>(where: Where, work: (cloud: Cloud) => Promise<T>): Promise<T> {
  const connection = await connect(where);
  const store = storeOf(connection);
  const {project, bucket, storage_endpoint: endpoint, token} = connection;
  try {
    return await work({
      ...{connection, store, dir: where.dir ?? DEFAULT_DIR},
      objects: openObjects({project, bucket, endpoint, token}),
      jobs: connection.jobs,
    });
  } finally {
    await store.close();
    await connection.close();
  }
}

/** The command of gcloud that publishes the message. */
export function publishLine(
  {deployment, project}: Pick<Connection, 'deployment' | 'project'>,
  topic: Topic,
  message: object,
): string {
  return `gcloud pubsub topics publish ${nameIn(deployment, topic)} --message=${quoted(jsonText(message))} --project=${quoted(project)}`;
}

/** Publishes the message and returns its id. */
export async function publish({connection, dir}: Cloud, topic: Topic, message: object): Promise<string> {
  const {project, deployment, token, pubsub_endpoint} = connection;
  if (pubsub_endpoint === null)
    throw new CliError(
      `the local cloud of this folder does not run: start it with \`gleaner local up --dir ${dir}\``,
    );
  try {
    return await openBus({project, deployment, token}).publish(topic, message as Document);
  } catch (error) {
    throw new CliError((error as Error).message, {cause: error});
  }
}

/** Publishes a message on topic control, waits until it is applied, and returns the reason. Throws `CliError` for a rejected one. */
export async function apply(cloud: Cloud, message: object): Promise<string> {
  const {outcome, reason} = await outcomeOf(cloud.store, await publish(cloud, 'control', message));
  if (outcome !== 'applied') throw new CliError(`the message was rejected: ${reason}`);
  return reason;
}

export type SendOptions = Where & {json?: boolean; dryRun?: boolean};

/** Publishes a control message, waits until it is applied, and prints what it did; or prints the command of gcloud. */
export async function send(message: object, options: SendOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const command = publishLine(cloud.connection, 'control', message);
    if (options.dryRun) return print(options.json, {command}, [command]);
    const done = await apply(cloud, message);
    print(options.json, {done}, [done]);
  });
}

/** Waits for the recorded outcome of a message. */
export async function outcomeOf(store: Store, id: string, wait_s = WAIT_S): Promise<Outcome> {
  for (const end = Date.now() + wait_s * 1000; Date.now() < end; await sleep(POLL_MS)) {
    const outcome = await readOutcome(store, id);
    if (outcome) return outcome;
  }
  throw new CliError(
    `message ${id} was published and not recorded in ${wait_s} s: see the log of the function on-control`,
  );
}

export async function readOutcome(store: Store, id: string): Promise<Outcome | undefined> {
  const record = await store.get(paths.control(id));
  return record && {outcome: String(record.outcome), reason: String(record.reason)};
}
