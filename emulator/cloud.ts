import {join, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';
import {CloudDatabase, lockFolder} from './database.ts';
import {badFault, Faults, isQueueFault, type NodeFault} from './faults.ts';
import {documentTriggersOf} from './functions/document-events.ts';
import {vmNetwork, type Where} from './functions/environment.ts';
import {Events} from './functions/events.ts';
import {FunctionHosts} from './functions/function-hosts.ts';
import {deploymentsIn, subscriptionsOf, topicsOf} from './functions/subscriptions.ts';
import {httpFunctions, readTriggers} from './functions/triggers.ts';
import {connectAll, startGoogle, watchAll} from './google/services.ts';
import {LocalCloudError} from './http/errors.ts';
import {guarded, proofOf, tokenIn} from './http/guard.ts';
import {type Route, router, serve} from './http/http.ts';
import {Identities, invokersOf} from './http/identity.ts';
import {localRoutes} from './local-api.ts';
import type {LocalCloud, LocalCloudOptions, StoredInfo} from './options.ts';
import {servePublisher} from './pubsub/grpc.ts';
import {pubsubRoutes} from './pubsub/rest.ts';
import {Topics} from './pubsub/topics.ts';
import {onRememberedPort} from './remembered-port.ts';
import {Scheduler} from './scheduler.ts';
import {infoOf, resourceOf} from './storage/resource.ts';
import {openStorage} from './storage/routes.ts';
import {Nodes} from './tpu/nodes.ts';
import {Queue} from './tpu/queue.ts';
import {tpuRoutes} from './tpu/routes.ts';
import {Fleet} from './vm/vms.ts';

export type {Where} from './functions/environment.ts';
export type {Deployment} from './functions/subscriptions.ts';
export {LocalCloudError} from './http/errors.ts';
export type {LocalCloud, LocalCloudOptions, LogLine, StoredInfo} from './options.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export async function startLocalCloud(options: LocalCloudOptions): Promise<LocalCloud> {
  const dir = resolve(options.dir);
  const {project = 'gleaner-local', storage_only = false} = options;
  const deployments = deploymentsIn(dir, options);
  const [{bucket, store_file}] = deployments;
  const log = (source: string, text: string) => options.log?.({at: new Date().toISOString(), source, text});
  const trouble = (error: unknown, where = '') => {
    log('cloud', `internal error${where && ` in ${where}`}: ${(error as Error).stack ?? error}`);
  };
  const triggers = readTriggers(options.triggers ?? here('../functions/triggers.json'));

  const ends: (() => unknown)[] = [];
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= (async () => {
      for (const end of ends.reverse()) await end();
    })();
    return closing;
  };

  try {
    const lock = lockFolder(dir);
    ends.push(() => lock.release());
    const token = tokenIn(dir);
    const identities = new Identities(dir);
    const database = new CloudDatabase(join(dir, 'cloud.db'));
    ends.push(() => database.close());

    const {jobs_collection} = options;
    const where: Where = {url: '', project, bucket, pubsub_endpoint: '', jobs_collection, dir, store_file};
    const names = deployments.map(({name}) => name);
    const topics = names.flatMap(name => topicsOf(triggers, name));
    const subscriptions = names.flatMap(name => subscriptionsOf(triggers, name));
    const documents = deployments.flatMap(each => documentTriggersOf(triggers, each, jobs_collection));
    // Faults of notifications have the target `object`.
    const notified = triggers.notifications.map(({topic}) => topic);
    const google = options.google_emulators
      ? await startGoogle({dir, project, token, topics, deployments: names})
      : undefined;
    if (google) ends.push(() => google.close());
    // Google's Pub/Sub emulator has no faults.
    const faults = new Faults(
      database,
      google ? ['document'] : topics.filter(topic => !notified.includes(topic)),
    );
    let hosts: FunctionHosts | undefined;
    const events = new Events({
      ...{database, faults, deployments, subscriptions, documents, project, token, trouble},
      notifications: triggers.notifications,
      portOf: receiver => hosts?.portOf(receiver),
      random: Math.random,
      forward: google && ((topic, message) => google.pubsub.publish(topic, message)),
    });

    const listeners = new Set<(object: StoredInfo) => void>();
    const storage = openStorage(dir, database, {
      recorded: (kind, object) => {
        if (kind === 'finalized') events.objectFinalized(object.bucket, resourceOf(object, where.url));
      },
      committed: (kind, object) => {
        if (kind !== 'finalized') return;
        for (const listener of listeners) {
          // The object stays stored when a listener throws.
          try {
            listener(infoOf(object));
          } catch (error) {
            trouble(error, 'onObject');
          }
        }
      },
    });
    const swept = storage.recover();
    if (swept > 0)
      log('cloud', `swept ${swept} file${swept === 1 ? '' : 's'} that an interrupted upload left`);
    for (const {bucket: wanted} of deployments)
      if (!storage.objects.buckets().some(({name}) => name === wanted)) storage.objects.makeBucket(wanted);

    const fleet = new Fleet({
      ...{dir, project, database, token, identities, log, trouble},
      network: () => ({...vmNetwork(where), ...options.vm_env}),
      port: () => Number(new URL(where.url).port),
    });
    const nodes = new Nodes({
      ...{database, faults, fleet, project, trouble},
      create_ms: options.create_ms ?? 500,
      delete_ms: options.delete_ms ?? 200,
      notice_ms: options.preemption_notice_ms ?? 10_000,
    });
    const queue = new Queue({database, faults, nodes, project, trouble, step_ms: options.queue_ms ?? 200});
    const scheduler = new Scheduler({
      ...{database, project, deployments: names, interval_ms: options.tick_interval_ms ?? 1000},
      publish: (topic, message) => void events.publish(topic, [message]),
      isReady: topic => events.isReady(topic),
    });
    const publisher = new Topics(database, events, project, topics);

    const fault = async (kind: string, target: string): Promise<string> => {
      if (storage_only) throw badFault('This emulator has storage only: it has no target for a fault');
      const toOne = () =>
        isQueueFault(kind) ? queue.inflict(kind, target) : nodes.inflict(kind as NodeFault, target);
      const done = faults.set(kind, target) ?? (await toOne());
      log('cloud', `fault: ${done}`);
      return done;
    };
    const info = () => ({
      ...where,
      tpus: nodes.list().map(({name, zone, id, state}) => ({
        name,
        zone,
        id,
        state,
        is_running: fleet.isOn(id),
        pid: fleet.pid(id),
      })),
      queued_resources: queue.list().map(({name, zone, state}) => ({name, zone, state})),
      scheduler: scheduler.state(),
      faults: faults.list(),
      deliveries_pending: events.bus.pending(),
      dead_letters: google ? undefined : events.bus.deadLetters(),
    });

    const prove = (nonce: string) => proofOf(token, nonce, new URL(where.url).port);

    const cloudRoutes = (): Route[] => [
      ...(google?.pubsub.routes() ?? pubsubRoutes(publisher)),
      ...tpuRoutes(nodes, queue, faults, project),
      ...scheduler.routes(),
      ...(hosts?.routes() ?? []),
      ...identities.routes(),
    ];
    const {function_host} = options;
    if (function_host && !storage_only) {
      hosts = new FunctionHosts({
        ...{deployments, triggers: triggers.functions, where, token, identities, log, trouble},
        options: {
          entry: here('./functions/function-host.ts'),
          module: here('../functions/index.ts'),
          ...function_host,
        },
        listening:
          google &&
          (deployment => {
            const own = subscriptions.filter(each => each.deployment === deployment);
            return connectAll(google, own, each => hosts?.portOf(each));
          }),
      });
    }
    const routes = router([
      ...localRoutes({info, prove, fault, shutdown: () => void close().catch(trouble)}),
      ...storage.routes,
      ...(storage_only ? [] : cloudRoutes()),
      storage.lastRoute,
    ]);

    const invokers = invokersOf(project, names, httpFunctions(triggers.functions));
    const guard = {token, identities, invokers, url: () => where.url};
    const server = await onRememberedPort(database, storage_only ? '' : 'port', options.port, port =>
      serve(guarded(guard, routes), {port, trouble}),
    );
    ends.push(() => server.close());
    where.url = server.url;
    if (!storage_only) {
      if (google) Object.assign(where, {...google.endpoints});
      else {
        const grpc = await onRememberedPort(database, 'pubsub_port', 0, port =>
          servePublisher(publisher, {port, token}),
        );
        ends.push(() => grpc.close());
        where.pubsub_endpoint = `127.0.0.1:${grpc.port}`;
      }
      ends.push(() => fleet.close());
      ends.push(async () => {
        queue.stop();
        nodes.stop();
        // Deliveries under way wait for their functions, so both stop at the same time.
        scheduler.stop();
        await Promise.all([events.bus.stop(), hosts?.stop()]);
      });
      await hosts?.start();
      events.bus.start();
      await nodes.start();
      queue.start();
      scheduler.start();
      const created = events.documentCreated.bind(events);
      if (google) ends.push(await watchAll(google, documents, {project, created, trouble}));
    }
    lock.note(`process ${process.pid}, ${server.url}`);
    log('cloud', `ready at ${server.url}, in ${dir}`);

    let ended: () => void = () => {};
    const closed = new Promise<void>((done, failed) => {
      ended = done;
      void google?.ended.then(why => closing ?? failed(new LocalCloudError('emulator-ended', why)));
    });
    closed.catch(() => {});
    ends.unshift(() => ended());
    return {
      ...where,
      ...{token, deployments, fault},
      port: server.port,
      onObject: listener => {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
      close,
      closed,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
