import {mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {type LocalCloud, type LocalCloudOptions, startLocalCloud} from '../../../emulator/cloud.ts';
import {urlWithToken} from '../../../emulator/http/guard.ts';

const fixture = (name: string) => fileURLToPath(new URL(`../../emulator/fixtures/${name}`, import.meta.url));
export const triggers = fixture('triggers.json');
export const functionsModule = fixture('functions.ts');

/** Address of a cloud with its token, for requests that write. */
export const tokenUrl = ({url, token}: Pick<LocalCloud, 'url' | 'token'>) => urlWithToken(url, token);

/** State of a cloud, for a client with its token. */
export async function cloudState<State>(cloud: Pick<LocalCloud, 'url' | 'token'>): Promise<State> {
  return (await (await fetch(`${tokenUrl(cloud)}/_local/state`)).json()) as State;
}

/** One call that a function of the fixture recorded. */
export type Seen = {
  function: string;
  pid: number;
  at: number;
  id: string;
  type: string;
  source: string;
  text: string;
  data: {
    message: {messageId: string; publishTime: string; data: string; attributes: Record<string, string>};
  };
  /** Body of a push that the framework did not make an event. */
  body?: unknown;
};

/** No tick of the Scheduler comes within a test that does not ask for one. */
const HOUR_MS = 3_600_000;

/** Folders and clouds of tests. `end` closes the clouds and removes the folders; a hook of mocha, `after` or `afterEach`, calls it. */
export class Scratch {
  readonly #dirs: string[] = [];
  readonly #clouds: LocalCloud[] = [];
  readonly log: string[] = [];

  constructor(hook?: Mocha.HookFunction) {
    hook?.(() => this.end());
  }

  dir(): string {
    const dir = mkdtempSync(join(tmpdir(), 'gleaner-local-'));
    this.#dirs.push(dir);
    return dir;
  }

  async cloud(options: Partial<LocalCloudOptions> = {}): Promise<LocalCloud> {
    const log = (line: {source: string; text: string}) => this.log.push(`${line.source}: ${line.text}`);
    const defaults = {dir: this.dir(), port: 0, triggers, create_ms: 20, tick_interval_ms: HOUR_MS, log};
    const cloud = await startLocalCloud({...defaults, ...options});
    this.#clouds.push(cloud);
    return cloud;
  }

  /** Cloud with the functions of the fixture; `seen` reads their recorded calls. */
  async cloudWithFunctions(
    options: Partial<LocalCloudOptions> = {},
  ): Promise<{cloud: LocalCloud; seen: () => Seen[]}> {
    const dir = options.dir ?? this.dir();
    const file = join(dir, 'seen.jsonl');
    const cloud = await this.cloud({
      dir,
      function_host: {module: functionsModule, env: {SEEN: file}},
      ...options,
    });
    return {cloud, seen: () => readLines(file)};
  }

  async end(): Promise<void> {
    for (const cloud of this.#clouds.splice(0)) await cloud.close();
    for (const dir of this.#dirs.splice(0)) rmSync(dir, {recursive: true, force: true, maxRetries: 3});
    this.log.length = 0;
  }
}

export function readLines(file: string): Seen[] {
  let text = '';
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    return [];
  }
  const lines = text.split('\n').slice(0, -1);
  return lines.map(line => JSON.parse(line) as Seen);
}

/** Stores an object. */
export const put = (cloud: LocalCloud, name: string, body = 'x') =>
  fetch(
    `${tokenUrl(cloud)}/upload/storage/v1/b/${cloud.bucket}/o?uploadType=media&name=${encodeURIComponent(name)}`,
    {method: 'POST', body},
  );
/** Publishes a message for each text, and returns their ids. */
export const publish = async (cloud: LocalCloud, topic: string, ...texts: string[]): Promise<string[]> => {
  const messages = texts.map(text => ({data: Buffer.from(text).toString('base64')}));
  const answer = await fetch(`${tokenUrl(cloud)}/v1/projects/${cloud.project}/topics/${topic}:publish`, {
    method: 'POST',
    body: JSON.stringify({messages}),
  });
  return ((await answer.json()) as {messageIds: string[]}).messageIds;
};
