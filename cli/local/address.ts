/** Where the commands look for a local cloud. Loads nothing of the cloud itself, because most commands only connect to one. */
import {readFile} from 'node:fs/promises';
import {join} from 'node:path';
import type {CloudAddress} from '../../emulator/cloud.ts';

/** Default port and folder of `gleaner local up`. */
export const DEFAULT_PORT = 8790;
/** Default port of the pages. */
export const DASHBOARD_PORT = 8791;
export const DEFAULT_DIR = '.gleaner/local';
/** File in the folder of a running cloud, with its URL and its token. */
export const ADDRESS_FILE = 'address.json';

/** URL of the cloud that runs in `dir`, from its address file; undefined without the file. */
export async function addressIn(dir: string): Promise<string | undefined> {
  try {
    return JSON.parse(await readFile(join(dir, ADDRESS_FILE), 'utf8')).url;
  } catch {
    return undefined;
  }
}

/** Sets the variables of Google's clients, which override their options. The shell may point at another local cloud. */
export function pointClientsAt({url, pubsub_endpoint, firestore_endpoint}: CloudAddress): void {
  Object.assign(process.env, {
    ...(firestore_endpoint === undefined ? {} : {FIRESTORE_EMULATOR_HOST: firestore_endpoint}),
    STORAGE_EMULATOR_HOST: url,
    PUBSUB_EMULATOR_HOST: pubsub_endpoint,
    METADATA_SERVER_DETECTION: 'none',
  });
}
