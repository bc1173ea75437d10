import {readFile} from 'node:fs/promises';
import {setTimeout as sleep} from 'node:timers/promises';
import {type Config, requireWorkerApi} from './contracts/settings/config.ts';
import {ActiveRuns} from './control-plane/caches/active-runs.ts';
import {newOpenRuns} from './control-plane/caches/open-runs.ts';
import {KnownPools} from './control-plane/caches/pool-cache.ts';
import {jsonLog} from './control-plane/calls/log.ts';
import {TickQueue} from './control-plane/calls/tick-queue.ts';
import type {Deps} from './control-plane/deps.ts';
import {withNotices} from './control-plane/documents/notices.ts';
import {withRunMarks} from './control-plane/documents/run-marks.ts';
import {openCatalog} from './google/billing-catalog.ts';
import {openBus} from './google/bus.ts';
import {openCallers} from './google/callers.ts';
import {memoizeAsync} from './google/memoize-async.ts';
import {openObjectTokens} from './google/object-tokens.ts';
import {openObjects} from './google/objects.ts';
import {sendPing} from './google/ping.ts';
import {openProviders} from './google/providers.ts';
import {openSecrets} from './google/secrets.ts';
import {openWebhook} from './google/webhook.ts';
import {openStore} from './open-store.ts';
import type {Webhook} from './ports/ports.ts';

/** Composition root: chooses the adapter of each port. Each adapter loads its client when it is first called. */
export function composeDeps(config: Config): Deps {
  const {project, deployment, bucket, endpoints, local_token: token} = config;
  const {metadata_host, api_account: account, worker_account: service_account} = config.identity;
  const storage = {project, endpoint: endpoints.storage, token};
  const log = jsonLog(line => process.stdout.write(line), Date.now, project);
  const marking = withRunMarks({store: openStore(config), runMarks: new Map(), now: Date.now, log});
  return {
    store: config.notify ? withNotices(marking, Date.now) : marking,
    webhook: webhookOf(config),
    objects: openObjects({...storage, bucket}),
    checkpoints: openObjects({...storage, bucket: config.checkpoints_bucket}),
    tokens: openObjectTokens({metadata_host, account, endpoint: endpoints.sts}),
    secrets: openSecrets({
      ...{metadata_host, account, endpoint: endpoints.secrets},
      member: `serviceAccount:${deployment}-worker-api@${project}.iam.gserviceaccount.com`,
    }),
    bus: openBus({project, deployment, token}),
    tpus: openProviders(config.providers, {
      ...{project, token, endpoints, network: config.network, service_account},
    }),
    // Only on-tick pings, so only on-tick needs the address of worker-api.
    catalog: openCatalog({endpoint: endpoints.billing, token}),
    ping: async () => sendPing({worker_api: requireWorkerApi(config, 'on-tick'), metadata_host}),
    accountOf: openCallers(config),
    now: Date.now,
    log,
    config,
    ticks: new TickQueue({now: Date.now, sleep}),
    activeRuns: new ActiveRuns(),
    openRuns: newOpenRuns(),
    idlePools: new Map(),
    knownPools: new KnownPools(),
    frozenOutputs: new Map(),
    slotsLeftAlone: new Map(),
    startupScript,
  };
}

/** Only on-task has the address and the key. */
function webhookOf({notify}: Config): Webhook | undefined {
  return notify?.url === undefined
    ? undefined
    : openWebhook({url: notify.url, key: notify.key, now: Date.now});
}

const startupScript = memoizeAsync(() =>
  readFile(new URL('../worker-startup/startup.sh', import.meta.url), 'utf8'),
);
