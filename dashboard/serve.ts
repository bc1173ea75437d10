/** Serves the pages of a cloud on 127.0.0.1. */
import {createHmac, randomBytes} from 'node:crypto';
import type {Server} from 'node:http';
import type {AddressInfo} from 'node:net';
import {createAdaptorServer} from '@hono/node-server';
import type {Cloud} from '../client/cloud/cloud.ts';
import {openLogs} from '../client/logs/agent-logs.ts';
import type {FeatureReader} from '../client/views/feature.ts';
import {portInUse} from '../emulator/http/http.ts';
import {Allowance, billedObjects} from './billed-objects.ts';
import {onLoopback} from './guard.ts';
import {MirrorStore} from './mirror-store.ts';
import {dashboardRouter} from './router.ts';

/** `url` has the token: only its reader can open the pages. */
export type Dashboard = {url: string; port: number; close(): Promise<void>};

const [LOCAL_MS, GOOGLE_MS] = [1000, 5000];
/** Least time between two reads of a whole collection, in milliseconds for each of its documents. Reads of a local cloud cost nothing. */
const [LOCAL_WHOLE_MS, GOOGLE_WHOLE_MS] = [5, 800];
const [LOCAL_SELDOM_MS, GOOGLE_SELDOM_MS] = [900, 30_000];

/** `port`: 0 is any free port. `features`: without it the pages show no feature. Closing leaves the cloud open. */
export async function serveDashboard(
  cloud: Cloud,
  port: number,
  logs = openLogs(cloud.connection),
  features?: FeatureReader,
): Promise<Dashboard> {
  const {is_google, token: cloudToken} = cloud.connection;
  const now = Date.now;
  const allowance = new Allowance(now);
  const spend: Allowance['spend'] = is_google ? (...spent) => allowance.spend(...spent) : () => {};
  const store = new MirrorStore(cloud.store, {
    now,
    jobs: cloud.jobs,
    spend: documents => spend('firestore_read', documents),
    seldom_ms: is_google ? GOOGLE_SELDOM_MS : LOCAL_SELDOM_MS,
    whole_ms_each: is_google ? GOOGLE_WHOLE_MS : LOCAL_WHOLE_MS,
  });
  const token = tokenOf(cloudToken);
  let listening = port;
  const {app, feed} = dashboardRouter({
    source: {
      cloud: {...cloud, store, objects: billedObjects(cloud.objects, spend)},
      logs: billedObjects(logs, spend),
      features,
      now,
    },
    feed: {
      now,
      interval_ms: is_google ? GOOGLE_MS : LOCAL_MS,
      waitMs: () => (is_google ? allowance.waitMs() : 0),
    },
    guard: onLoopback({token, port: () => listening}),
    name: cloud.connection.name,
  });
  const server = createAdaptorServer({fetch: app.fetch}) as Server;
  listening = await listen(server, port);
  return {
    url: `http://127.0.0.1:${listening}/?token=${token}`,
    port: listening,
    close: async () => {
      feed.close();
      features?.close();
      const closed = new Promise<void>(resolve => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

/** A local cloud gives the same token after a restart, so an open page goes on. */
function tokenOf(cloudToken: string | undefined): string {
  if (cloudToken === undefined) return randomBytes(24).toString('base64url');
  return createHmac('sha256', cloudToken).update('the pages of the cloud').digest('base64url');
}

function listen(server: Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(error.code === 'EADDRINUSE' || error.code === 'EACCES' ? portInUse(port, error) : error),
    );
    server.listen(port, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
  });
}
