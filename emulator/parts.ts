/** The parts of a local cloud: opened without effect, then started in the order of their dependencies. */
import {statSync} from 'node:fs';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {storeCure} from '../shared/embedded/sqlite-store.ts';
import {INSTANCES} from './compute/instance.ts';
import {documentTriggersOf} from './functions/document-events.ts';
import {Events} from './functions/events.ts';
import {FunctionHosts} from './functions/function-hosts.ts';
import {type Deployment, type Subscription, subscriptionsOf, topicsOf} from './functions/subscriptions.ts';
import {readTriggers, type Triggers} from './functions/triggers.ts';
import {connectAll, type GoogleServices, startGoogle, watchAll} from './google/services.ts';
import {identifier, tokenIn} from './http/guard.ts';
import {Identities} from './http/identity.ts';
import type {LocalCloudOptions} from './options.ts';
import {Topics} from './pubsub/topics.ts';
import {Scheduler} from './scheduler.ts';
import type {CloudAddress} from './state/cloud-address.ts';
import {CloudDatabase, requireWhole} from './state/database.ts';
import {Faults} from './state/faults.ts';
import {startSweeps} from './storage/lifecycle.ts';
import {resourceOf} from './storage/resource.ts';
import {type RequireRight, rightsOf} from './storage/rights.ts';
import {openStorage} from './storage/routes.ts';
import {startExpiry} from './store-expiry.ts';
import {NODES} from './tpu/node.ts';
import {Queue} from './tpu/queue.ts';
import {Tpus} from './vm/tpus.ts';
import {Fleet} from './vm/vms.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Cleanups of the parts that were started. Each runs once, the last one first. */
export class Ends {
  readonly #ends: (() => unknown)[] = [];
  #closing: Promise<void> | undefined;

  add(end: () => unknown): void {
    this.#ends.push(end);
  }

  /** Adds a cleanup that runs after all others. */
  addLast(end: () => unknown): void {
    this.#ends.unshift(end);
  }

  get isClosing(): boolean {
    return this.#closing !== undefined;
  }

  close(): Promise<void> {
    this.#closing ??= (async () => {
      for (const end of this.#ends.reverse()) await end();
    })();
    return this.#closing;
  }
}

export type CloudContext = {
  options: LocalCloudOptions;
  /** Addresses; empty until the servers listen. */
  where: CloudAddress;
  deployments: Deployment[];
  ends: Ends;
  log: (source: string, text: string) => void;
  trouble: (error: unknown, where?: string) => void;
};

export type Parts = Awaited<ReturnType<typeof openParts>>;

export async function openParts(context: CloudContext) {
  const {options, where, deployments, ends, log, trouble} = context;
  const {dir, project} = where;
  const token = tokenIn(dir);
  const names = deployments.map(({name}) => name);
  const identify = identifier(token, project, names);
  const identities = new Identities(dir);
  if (!options.storage_only && !options.google_emulators)
    for (const {store_file} of deployments) requireWhole(store_file, storeCure(store_file));
  const database = new CloudDatabase(join(dir, 'cloud.db'));
  ends.add(() => database.close());

  const triggers = readTriggers(options.triggers ?? here('../functions/triggers.json'));
  const topics = names.flatMap(name => topicsOf(triggers, name));
  const subscriptions = names.flatMap(name => subscriptionsOf(triggers, name));
  const documents = deployments.flatMap(each => documentTriggersOf(triggers, each, options.jobs_collection));
  const google = options.google_emulators
    ? await startGoogle({dir, project, token, topics, deployments: names})
    : undefined;
  if (google) ends.add(() => google.close());
  const faults = new Faults(database, faultyTopics(topics, triggers, google));

  const hosts = functionHosts(context, {triggers, subscriptions, google, token, identities});
  const events = new Events({
    ...{database, faults, deployments, subscriptions, documents, project, token, trouble},
    notifications: triggers.notifications,
    portOf: receiver => hosts?.portOf(receiver),
    random: Math.random,
    forward: google && ((topic, message) => google.pubsub.publish(topic, message)),
  });
  const storage = openBuckets(context, database, events, rightsOf(deployments));

  const fleet = new Fleet({
    ...{dir, project, database, token, identities, log, trouble},
    // The boot of the VM adds the address of its metadata server.
    network: () => ({STORAGE_EMULATOR_HOST: where.url, ...options.vm_env}),
  });
  const step_ms = options.queue_ms ?? 200;
  const timed = {
    ...{database, faults, fleet, project, trouble, step_ms},
    create_ms: options.create_ms ?? 500,
    delete_ms: options.delete_ms ?? 200,
    notice_ms: options.preemption_notice_ms ?? 10_000,
  };
  const nodes = new Tpus(timed, NODES);
  const instances = new Tpus(timed, INSTANCES);
  const queue = new Queue({database, faults, nodes, project, trouble, step_ms});
  const scheduler = new Scheduler({
    ...{database, project, deployments: names, interval_ms: options.tick_interval_ms ?? 1000},
    publish: (topic, message) => void events.publish(topic, [message]),
    isReady: topic => events.isReady(topic),
    written_ms: () => (google ? undefined : lastWrite(deployments)),
  });
  const publisher = new Topics(database, events, project, topics);
  return {
    ...{token, identify, identities, database, triggers, names, documents, google, faults, hosts, events},
    ...{storage, fleet, nodes, instances, queue, scheduler, publisher},
  };
}

/** SQLite writes to the file beside the store first. */
function lastWrite(deployments: Deployment[]): number {
  const files = deployments.map(({store_file}) => statSync(`${store_file}-wal`, {throwIfNoEntry: false}));
  return Math.max(...files.map(file => file?.mtimeMs ?? Number.POSITIVE_INFINITY));
}

/** Topics that support faults. Faults of notifications have the target `object`; Google's Pub/Sub emulator supports none. */
function faultyTopics(topics: string[], triggers: Triggers, google: GoogleServices | undefined): string[] {
  if (google) return ['document'];
  const notified = triggers.notifications.map(({topic}) => topic);
  return topics.filter(topic => !notified.includes(topic));
}

function functionHosts(
  {options, where, deployments, log, trouble}: CloudContext,
  parts: {
    triggers: Triggers;
    subscriptions: Subscription[];
    google: GoogleServices | undefined;
    token: string;
    identities: Identities;
  },
): FunctionHosts | undefined {
  const {function_host, storage_only} = options;
  if (!function_host || storage_only) return undefined;
  const {triggers, subscriptions, google, token, identities} = parts;
  const listening = async (deployment: string): Promise<void> => {
    const own = subscriptions.filter(each => each.deployment === deployment);
    if (google) await connectAll(google, own, each => hosts.portOf(each));
  };
  const hosts = new FunctionHosts({
    ...{deployments, triggers: triggers.functions, where, token, identities, log, trouble},
    options: {
      entry: here('./functions/function-host.ts'),
      module: here('../functions/index.ts'),
      ...function_host,
    },
    listening: google && listening,
  });
  return hosts;
}

/** Opens the storage, removes what interrupted uploads left, and creates the bucket of each deployment. */
function openBuckets(
  {where, deployments, log}: CloudContext,
  database: CloudDatabase,
  events: Events,
  requireRight: RequireRight,
) {
  const storage = openStorage(
    where.dir,
    database,
    object => events.objectFinalized(object.bucket, resourceOf(object, where.url)),
    requireRight,
  );
  const {swept, found, moved} = storage.recover();
  if (moved > 0)
    log('cloud', `${moved} files in buckets/ were no objects: they are in ${where.dir}/not-objects now`);
  if (found > 0) log('cloud', `recovered ${found} objects that cloud.db had lost`);
  if (swept > 0) log('cloud', `swept ${swept} file${swept === 1 ? '' : 's'} that an interrupted upload left`);
  for (const {bucket} of deployments)
    if (!storage.objects.buckets().some(({name}) => name === bucket)) storage.objects.makeBucket(bucket);
  return storage;
}

/** Starts the parts that need the servers' addresses. */
export async function startParts(
  {options, where, deployments, ends, trouble}: CloudContext,
  parts: Parts,
): Promise<void> {
  const {google, documents, hosts, events, storage, fleet, nodes, instances, queue, scheduler} = parts;
  ends.add(() => fleet.close());
  ends.add(async () => {
    queue.stop();
    nodes.stop();
    instances.stop();
    // Running deliveries wait for their functions, so both are stopped together.
    scheduler.stop();
    await Promise.all([events.bus.stop(), hosts?.stop()]);
  });
  await hosts?.start();
  events.bus.start();
  const vms = [...nodes.shown(), ...instances.shown()].flatMap(tpu => tpu.vms);
  await fleet.sweepDisks(vms.map(({id}) => id));
  await nodes.start();
  await instances.start();
  queue.start();
  scheduler.start();
  ends.add(startSweeps(storage.objects, trouble));
  const files = hosts && !google ? deployments.map(({store_file}) => store_file) : [];
  ends.add(startExpiry(files, options.jobs_collection ?? 'jobs', trouble));
  const created = events.documentCreated.bind(events);
  if (google) ends.add(await watchAll(google, documents, {project: where.project, created, trouble}));
}
