import {urlWithToken} from '../../emulator/http/token-path.ts';
import {CliError} from '../text/errors.ts';
import {DEFAULT_DIR} from './address.ts';

export type Connection = {
  /** False for a local cloud. */
  is_google: boolean;
  /** Address of Cloud Storage; undefined for Google Cloud. */
  storage_endpoint: string | undefined;
  /** Address of Pub/Sub; undefined for Google Cloud, null without Pub/Sub. */
  pubsub_endpoint: string | null | undefined;
  /** Token of a local cloud; undefined for Google Cloud. */
  token: string | undefined;
  /** Folder of a local cloud; undefined for Google Cloud. */
  folder: string | undefined;
  project: string;
  deployment: string;
  bucket: string;
  /** Model of runs without `model`; undefined where this machine does not know the model. */
  default_model: string | undefined;
  /** Store: `sqlite:FILE` or `firestore:DATABASE`. */
  store: string;
  /** Collection of the documents of jobs, which the deployment chooses. */
  jobs: string;
  /** Where the cloud was found, such as `--port` or GLEANER_PROJECT. */
  origin: string;
  /** Origins of single values, where they differ from `origin`. */
  origins: Readonly<Record<string, string>>;
  close(): Promise<void>;
};

type Storage = Pick<Connection, 'storage_endpoint' | 'token'>;

/** Variables of a Python program that reads the bucket. Google's Python client sends no credentials to an emulator. */
export function storageVariables({storage_endpoint: url, token}: Storage): Record<string, string> {
  if (url === undefined) return {};
  return {STORAGE_EMULATOR_HOST: token === undefined ? url : urlWithToken(url, token)};
}

/** Throws `CliError` for the files of a stopped local cloud. `dir`: the folder that the command line names. */
export function requireRunning({pubsub_endpoint}: Pick<Connection, 'pubsub_endpoint'>, dir?: string): void {
  if (pubsub_endpoint === null) throw notRunning(dir ?? DEFAULT_DIR);
}

export function notRunning(dir: string): CliError {
  return new CliError(`No local cloud runs in ${dir}: start it with \`gleaner local up --dir ${dir}\``);
}
