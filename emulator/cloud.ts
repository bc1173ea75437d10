import {resolve} from 'node:path';
import {catalogRoutes} from './billing/catalog.ts';
import {ComputeRoutes} from './compute/routes.ts';
import {sourceStack} from './functions/one-file.ts';
import {deploymentsIn} from './functions/subscriptions.ts';
import {httpFunctions} from './functions/triggers.ts';
import {LocalCloudError} from './http/errors.ts';
import {guarded, proofOf} from './http/guard.ts';
import {type Route, router, serve} from './http/http.ts';
import {invokersOf} from './http/identity.ts';
import type {JsonObject} from './http/json.ts';
import {authorized} from './http/permissions.ts';
import {localRoutes} from './local-api.ts';
import type {LocalCloud, LocalCloudOptions} from './options.ts';
import {type CloudContext, Ends, openParts, type Parts, startParts} from './parts.ts';
import {servePublisher} from './pubsub/grpc.ts';
import {pubsubRoutes} from './pubsub/rest.ts';
import {secretRoutes} from './secrets.ts';
import {lockFolder} from './state/database.ts';
import {badFault, isQueueFault, type NodeFault, nodeTargetOf} from './state/faults.ts';
import {forgetAddress, writeAddress} from './state/own-folder.ts';
import {onRememberedPort} from './state/remembered-port.ts';
import {tokenServiceRoutes} from './token-service.ts';
import {TpuRoutes} from './tpu/routes.ts';

export type {Deployment} from './functions/subscriptions.ts';
export {LocalCloudError} from './http/errors.ts';
export type {LocalCloud, LocalCloudOptions, LogLine} from './options.ts';

/** Starts a cloud in a folder, and continues the cloud that ran there before, if any. */
export async function startLocalCloud(options: LocalCloudOptions): Promise<LocalCloud> {
  const context = contextOf(options);
  const {where, deployments, ends, log} = context;
  try {
    const lock = lockFolder(where.dir, options.adopt);
    ends.add(() => lock.release());
    const parts = await openParts(context);
    const fault = faultsOf(context, parts);
    const routes = routesOf(context, parts, fault);
    const port = await listen(context, parts, routes);
    if (!options.storage_only) {
      await startParts(context, parts);
      ends.add(() => forgetAddress(where.dir));
      writeAddress(where);
    }
    lock.note(`process ${process.pid}, ${where.url}`);
    log('cloud', `ready at ${where.url}, in ${where.dir}`);
    return {
      ...where,
      ...{token: parts.token, deployments, fault, port},
      routes: routes.map(([method, template]) => ({method, template})),
      close: () => ends.close(),
      closed: closedOf(context, parts),
    };
  } catch (error) {
    await ends.close();
    throw error;
  }
}

function contextOf(options: LocalCloudOptions): CloudContext {
  const dir = resolve(options.dir);
  const {project = 'gleaner-local', jobs_collection} = options;
  const deployments = deploymentsIn(dir, options);
  const [{bucket, store_file}] = deployments;
  const log = (source: string, text: string) => options.log?.({at: new Date().toISOString(), source, text});
  return {
    ...{options, deployments, log},
    where: {url: '', project, bucket, pubsub_endpoint: '', jobs_collection, dir, store_file},
    ends: new Ends(),
    trouble: (error, where = '') =>
      log(
        'cloud',
        `internal error${where && ` in ${where}`}: ${sourceStack((error as Error).stack ?? `${error}`)}`,
      ),
  };
}

function faultsOf(
  {options, log}: CloudContext,
  {faults, queue, nodes, instances}: Parts,
): LocalCloud['fault'] {
  return async (kind, target) => {
    if (options.storage_only) throw badFault('This emulator has storage only: it has no target for a fault');
    const toOne = () => {
      if (isQueueFault(kind)) return queue.inflict(kind, target);
      const {name} = nodeTargetOf(kind as NodeFault, target);
      const owner = [nodes, instances].find(each => each.names().includes(name));
      if (owner) return owner.inflict(kind as NodeFault, target);
      const names = [...nodes.names(), ...instances.names()].join(', ');
      throw badFault(`Unknown TPU "${name}"; the cloud has ${names || 'no TPU now'}`);
    };
    const done = faults.set(kind, target) ?? (await toOne());
    log('cloud', `fault: ${done}`);
    return done;
  };
}

/** Starts the HTTP server and the gRPC server of Pub/Sub, records their addresses, and returns the HTTP port. */
async function listen(context: CloudContext, parts: Parts, routes: Route[]): Promise<number> {
  const {options, where, ends, trouble} = context;
  const {database, fleet, google, publisher, token, identify, identities, names, triggers} = parts;
  const invokers = invokersOf(where.project, names, httpFunctions(triggers.functions));
  const cutFor = (vm: string) => fleet.cutFor(vm);
  const guard = {token, identify, identities, invokers, cutFor, url: () => where.url};
  const handle = guarded(guard, router(authorized(routes)));
  const server = await onRememberedPort(database, options.storage_only ? '' : 'port', options.port, port =>
    serve(handle, {port, trouble}),
  );
  ends.add(() => server.close());
  where.url = server.url;
  if (google) Object.assign(where, google.endpoints);
  else if (!options.storage_only) {
    const grpc = await onRememberedPort(database, 'pubsub_port', 0, port =>
      servePublisher(publisher, {port, identify}),
    );
    ends.add(() => grpc.close());
    where.pubsub_endpoint = `127.0.0.1:${grpc.port}`;
  }
  return server.port;
}

function routesOf(
  {options, where, ends, trouble}: CloudContext,
  parts: Parts,
  fault: LocalCloud['fault'],
): Route[] {
  const {storage, google, publisher, nodes, instances, queue, faults, scheduler, hosts} = parts;
  const {identities, token} = parts;
  const cloudRoutes = (): Route[] => [
    ...(google?.pubsub.routes() ?? pubsubRoutes(publisher)),
    ...new TpuRoutes(nodes, queue, faults, where.project).routes(),
    ...new ComputeRoutes(instances, faults, where.project).routes(),
    ...scheduler.routes(),
    ...catalogRoutes(),
    ...secretRoutes(where.dir, options.secret_readers),
    ...(hosts?.routes() ?? []),
    ...identities.routes(),
  ];
  return [
    ...localRoutes({
      info: () => infoOf(where, parts),
      prove: nonce => proofOf(token, nonce, new URL(where.url).port),
      fault,
      shutdown: () => void ends.close().catch(trouble),
    }),
    ...storage.routes,
    ...tokenServiceRoutes(token),
    ...(options.storage_only ? [] : cloudRoutes()),
    storage.lastRoute,
  ];
}

/** The answer of `GET /_local/state`. */
function infoOf(where: CloudContext['where'], parts: Parts): JsonObject {
  const {nodes, instances, fleet, queue, scheduler, faults, events, google} = parts;
  return {
    ...where,
    tpus: [...nodes.shown(), ...instances.shown()].map(({name, zone, id, state, vms}) => ({
      ...{name, zone, id, state},
      vms: vms.map(vm => ({name: vm.name, pid: fleet.pid(vm.id)})),
    })),
    queued_resources: queue.list().map(({name, zone, state}) => ({name, zone, state})),
    scheduler: scheduler.state(),
    faults: faults.list(),
    deliveries_pending: events.bus.pending(),
    dead_letters: google ? undefined : events.bus.deadLetters(),
  };
}

function closedOf({ends}: CloudContext, {google}: Parts): Promise<void> {
  const closed = new Promise<void>((resolve, reject) => {
    ends.addLast(resolve);
    void google?.ended.then(why => {
      if (!ends.isClosing) reject(new LocalCloudError('emulator-ended', why));
    });
  });
  closed.catch(() => {});
  return closed;
}

export type {CloudAddress} from './state/cloud-address.ts';
