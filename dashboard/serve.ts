/** Serves the pages of a cloud on 127.0.0.1. */
import {createHmac, randomBytes} from 'node:crypto';
import type {Server} from 'node:http';
import type {AddressInfo} from 'node:net';
import {createAdaptorServer} from '@hono/node-server';
import type {Cloud} from '../cli/cloud/cloud.ts';
import {openLogs} from '../cli/logs/agent-logs.ts';
import {portInUse} from '../emulator/http/http.ts';
import {onLoopback} from './guard.ts';
import {openPages} from './pages-of-cloud.ts';

/** `url` has the token: only its reader can open the pages. */
export type Dashboard = {url: string; port: number; close(): Promise<void>};

/** `port`: 0 is any free port. Closing leaves the cloud open. */
export async function serveDashboard(
  cloud: Cloud,
  port: number,
  logs = openLogs(cloud.connection),
): Promise<Dashboard> {
  const token = tokenOf(cloud.connection.token);
  let listening = port;
  const {app, feed} = openPages(cloud, logs, onLoopback({token, port: () => listening}));
  const server = createAdaptorServer({fetch: app.fetch}) as Server;
  listening = await listen(server, port);
  return {
    url: `http://127.0.0.1:${listening}/?token=${token}`,
    port: listening,
    close: async () => {
      feed.close();
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
