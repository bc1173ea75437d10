import type {DocumentEvent, DocumentTrigger} from '../functions/document-events.ts';
import type {Subscription} from '../functions/subscriptions.ts';
import {pushTokenOf} from '../http/guard.ts';
import {watchDocuments} from './documents.ts';
import {type EmulatorProcess, requireEmulators, startEmulator} from './process.ts';
import {GooglePubsub} from './pubsub.ts';

export type GoogleServices = {
  endpoints: {firestore_endpoint: string; pubsub_endpoint: string};
  pubsub: GooglePubsub;
  /** Resolves with a sentence when an emulator has ended. */
  ended: Promise<string>;
  close: () => Promise<void>;
};

/** Starts Google's emulators of Firestore and Pub/Sub, and creates the topics. Both keep everything in memory. */
export async function startGoogle(options: {
  dir: string;
  project: string;
  token: string;
  topics: string[];
  deployments: string[];
}): Promise<GoogleServices> {
  const {dir, project, token, topics, deployments} = options;
  requireEmulators();
  const started: EmulatorProcess[] = [];
  const close = async () => {
    await Promise.all(started.map(each => each.stop()));
  };
  const start = async (kind: 'firestore' | 'pubsub') => {
    const emulator = await startEmulator(kind, dir);
    started.push(emulator);
    return emulator;
  };
  try {
    const [firestore, google] = await allOrThrow([start('firestore'), start('pubsub')]);
    const pubsub = new GooglePubsub({host: google.host, project, push_token: pushTokenOf(token)});
    await pubsub.createTopics(topics, deployments);
    return {
      endpoints: {firestore_endpoint: firestore.host, pubsub_endpoint: google.host},
      ...{pubsub, close},
      ended: Promise.race(started.map(({ended}) => ended)),
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Waits for both even if one fails, because the other must be known before it can be stopped. */
async function allOrThrow<T>(both: [Promise<T>, Promise<T>]): Promise<[T, T]> {
  await Promise.allSettled(both);
  return Promise.all(both);
}

/** Points the subscriptions of a deployment at the ports of its functions. */
export async function connectAll(
  {pubsub}: GoogleServices,
  subscriptions: Subscription[],
  portOf: (subscription: Subscription) => number | undefined,
): Promise<void> {
  for (const subscription of subscriptions) {
    const port = portOf(subscription);
    if (port !== undefined) await pubsub.connect(subscription, port);
  }
}

/** Calls `created` for each new document of the triggers, until the returned function is called. */
export async function watchAll(
  {endpoints}: GoogleServices,
  triggers: DocumentTrigger[],
  options: {
    project: string;
    created: (trigger: DocumentTrigger, event: DocumentEvent) => void;
    trouble: (error: unknown) => void;
  },
): Promise<() => Promise<void>> {
  const {project, created, trouble} = options;
  const ends = await Promise.all(
    triggers.map(trigger =>
      watchDocuments({
        ...{host: endpoints.firestore_endpoint, project, database: trigger.deployment, trouble},
        collection: trigger.collection,
        created: ({data, ...document}) => created(trigger, {...document, data: data.toString('base64')}),
      }),
    ),
  );
  return async () => {
    await Promise.all(ends.map(end => end()));
  };
}
