import {LocalCloudError} from '../http/errors.ts';
import type {CloudDatabase} from './database.ts';

/** Serves on the port of the last start unless the options name a port: TPUs that survived a crash know that address. */
export async function onRememberedPort<Server extends {port: number}>(
  database: CloudDatabase,
  key: string,
  asked: number,
  listen: (port: number) => Promise<Server>,
): Promise<Server> {
  const remembered = asked === 0 && key !== '' ? Number(database.setting(key) ?? 0) : 0;
  let server: Server;
  try {
    server = await listen(remembered || asked);
  } catch (error) {
    const isTaken = error instanceof LocalCloudError && error.code === 'port-in-use';
    if (!isTaken || remembered === 0) throw error;
    server = await listen(0);
  }
  if (key !== '') database.set(key, String(server.port));
  return server;
}
