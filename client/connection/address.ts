/** Where the commands look for a local cloud. Loads nothing of the cloud itself, because most commands only connect to one. */
import type {CloudAddress} from '../../emulator/cloud.ts';

/** Default port and folder of `gleaner local up`. */
export const DEFAULT_PORT = 8790;
export const DASHBOARD_PORT = 8791;
export const DEFAULT_DIR = '.gleaner/local';

/** Sets the variables of Google's clients, which override their options. The shell may point at another local cloud. */
export function pointClientsAt({url, pubsub_endpoint, firestore_endpoint}: CloudAddress): void {
  Object.assign(process.env, {
    ...(firestore_endpoint === undefined ? {} : {FIRESTORE_EMULATOR_HOST: firestore_endpoint}),
    STORAGE_EMULATOR_HOST: url,
    PUBSUB_EMULATOR_HOST: pubsub_endpoint,
    METADATA_SERVER_DETECTION: 'none',
  });
}
