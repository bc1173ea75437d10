import {resolve} from 'node:path';
import {urlWithToken} from '../../emulator/http/token-path.ts';
import {CliError} from '../text/errors.ts';
import {quoted} from '../text/output.ts';
import {DEFAULT_DIR} from './address.ts';
import {homeText} from './cloud-name.ts';

export type Connection = {
  /** False for a local cloud. */
  is_google: boolean;
  /** `local, FOLDER`, or `project PROJECT, deployment DEPLOYMENT`. */
  name: string;
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
  /** Settings file of a deployment on Google Cloud, if a folder of the user has it. */
  settings: string | undefined;
  /** What chose the cloud, such as `--port` or GLEANER_CLOUD. */
  origin: string;
  /** Origins of single values, where they differ from `origin`. */
  origins: Readonly<Record<string, string>>;
  /** Says that a local cloud does not run now, and how to start it; undefined for one that runs. */
  stopped(): Promise<string | undefined>;
  close(): Promise<void>;
};

type Storage = Pick<Connection, 'storage_endpoint' | 'token'>;

/** Variables of a Python program that reads the bucket. Google's Python client sends no credentials to an emulator. */
export function storageVariables({storage_endpoint: url, token}: Storage): Record<string, string> {
  if (url === undefined) return {};
  return {STORAGE_EMULATOR_HOST: token === undefined ? url : urlWithToken(url, token)};
}

/** Throws `CliError` for the files of a stopped local cloud. */
export function requireRunning({
  pubsub_endpoint,
  folder,
}: Pick<Connection, 'pubsub_endpoint' | 'folder'>): void {
  if (pubsub_endpoint === null) throw new CliError(stoppedText(folder ?? DEFAULT_DIR));
}

export function stoppedText(dir: string): string {
  const folder = dir === resolve(DEFAULT_DIR) ? '' : ` --dir ${quoted(dir)}`;
  return `the local cloud in ${homeText(dir)} is stopped: start it with \`gleaner local up${folder}\``;
}
