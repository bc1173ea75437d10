/** Servers of tests, on a free port of this machine. */
import {once} from 'node:events';
import type {AddressInfo, Server} from 'node:net';

/** Starts a server, and returns its address, such as `127.0.0.1:4711`. */
export async function listen(server: Server): Promise<string> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return addressOf(server);
}

export const portOf = (server: Server): number => (server.address() as AddressInfo).port;
export const addressOf = (server: Server): string => `127.0.0.1:${portOf(server)}`;
