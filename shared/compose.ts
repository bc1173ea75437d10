import {readFile} from 'node:fs/promises';
import type {Config} from './config.ts';
import type {Store} from './ports.ts';
import type {Deps} from './shell/deps.ts';
import {jsonLog} from './shell/log.ts';

/**
 * The one place that knows which adapter stands behind which port. Each adapter is imported when it is asked for, so that a
 * function starts with the clients that its deployment uses and no others.
 */
export async function composeDeps(config: Config): Promise<Deps> {
  const {project, bucket, endpoints} = config;
  const [{openObjects}, {openBus}, {openTpus}, {openTicker}] = await Promise.all([
    import('./google/objects.ts'),
    import('./google/bus.ts'),
    import('./google/tpus.ts'),
    import('./google/ticker.ts'),
  ]);
  return {
    store: await openStore(config),
    objects: await openObjects({project, bucket, endpoint: endpoints.storage}),
    bus: await openBus({project}),
    tpus: await openTpus({project, endpoint: endpoints.tpu}),
    ticker: await openTicker({job: config.tick_job, endpoint: endpoints.scheduler}),
    now: Date.now,
    log: jsonLog(line => process.stdout.write(line), Date.now),
    config,
    startupScript,
  };
}

export async function openStore(config: Pick<Config, 'store' | 'project'>): Promise<Store> {
  const [kind, ...rest] = config.store.split(':');
  const where = rest.join(':');
  if (kind === 'sqlite') return (await import('./embedded/sqlite-store.ts')).openSqliteStore(where);
  const {openFirestoreStore} = await import('./google/firestore-store.ts');
  return openFirestoreStore({project: config.project, ...(where ? {database: where} : {})});
}

let script: Promise<string> | undefined;
function startupScript(): Promise<string> {
  script ??= readFile(new URL('../worker-startup/startup.sh', import.meta.url), 'utf8');
  return script;
}
