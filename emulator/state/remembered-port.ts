import {LocalCloudError} from '../http/errors.ts';
import type {CloudDatabase} from './database.ts';

/** Serves on the last port unless the options name one, because TPUs that survived a crash use that address. */
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
