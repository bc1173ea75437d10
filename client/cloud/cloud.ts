/** The cloud of a command, open while the command works. */
import {openObjects} from '../../shared/google/objects.ts';
import type {Objects, Store} from '../../shared/ports/ports.ts';
import {NoCloud} from '../connection/choose.ts';
import {type CloudOptions, connect, storeOf} from '../connection/connect.ts';
import type {Connection} from '../connection/connection.ts';

/** Cloud of a command with its store and its bucket. */
export type Cloud = {
  connection: Connection;
  store: Store;
  objects: Objects;
  jobs: string;
};

/** Opens the cloud of a command, and closes it at the end of `work`. */
export async function withCloud<T>(options: CloudOptions, work: (cloud: Cloud) => Promise<T>): Promise<T> {
  return workOn(await connect(options), work);
}

/** Opens the cloud; undefined where no cloud is named and none is there. */
export async function withCloudIfThere<T>(
  options: CloudOptions,
  work: (cloud: Cloud | undefined) => Promise<T>,
): Promise<T> {
  const connection = await connect(options).catch((error: Error) => {
    if (!(error instanceof NoCloud)) throw error;
    return undefined;
  });
  return connection ? workOn(connection, work) : work(undefined);
}

async function workOn<T>(connection: Connection, work: (cloud: Cloud) => Promise<T>): Promise<T> {
  const cloud = openCloud(connection);
  try {
    return await work(cloud);
  } finally {
    await cloud.store.close();
    await connection.close();
  }
}

/** Opens the store and the bucket of a connection. */
export function openCloud(connection: Connection): Cloud {
  const {project, bucket, storage_endpoint: endpoint, token, jobs} = connection;
  const store = storeOf(connection);
  return {connection, store, objects: openObjects({project, bucket, endpoint, token}), jobs};
}
