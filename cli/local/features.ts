/** Features for the pages: `gleaner_reader.export` reads the run in the background, and the cache keeps what it writes. */
import {hash} from 'node:crypto';
import {readFile, rename, rm, stat} from 'node:fs/promises';
import {join} from 'node:path';
import {type Connection, storageVariables} from '../../client/connection/connection.ts';
import {cacheFolder, LOCK, runWorkerModule} from '../../client/python/python.ts';
import {CliError} from '../../client/text/errors.ts';
import {
  type Feature,
  type FeatureAsked,
  type FeatureReader,
  featureFile,
} from '../../client/views/feature.ts';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import {outputsPrefix} from '../../shared/domain/names.ts';

/** A reading ends, and a failure is forgotten, when no page has asked for so long. */
const FORGET_MS = 60_000;
/** An unfinished run has more rows each time: it is read again after so long. */
const STALE_MS = 600_000;
const MAX_BYTES = 8_000_000;
const UNREAD =
  'Not read yet. It downloads all stored feature ids of the layer, which Google bills if it leaves the region.';

/** What the pages hear of a feature that is being read, which `stop` ends, or whose reading has failed. */
type State = {text: string; asked_ms: number; stop?: AbortController};

export function featureReader(
  connection: Connection,
  {run = runWorkerModule, now = Date.now} = {},
): FeatureReader {
  const {bucket, project, folder = ''} = connection;
  const states = new Map<string, State>();

  /** Writes beside the file and renames, because `local up` and `gleaner dashboard` may read the same feature. */
  async function exportFeature({run: name, ...asked}: FeatureAsked, path: string, state: Required<State>) {
    const output = `${path}.${process.pid}`;
    const removed = [output, `${output}.unfinished`].map(each => rm(each, {recursive: true, force: true}));
    await Promise.all(removed);
    const address = `gs://${bucket}/${outputsPrefix(name).replace(/\/?tpu_$/, '')}`;
    const options = {to: 'features', layer: asked.layer, ids: asked.id, site: asked.name, output};
    const args = Object.entries(options).flatMap(([key, value]) => [`--${key}`, String(value)]);
    const say = (line: string) => {
      state.text = `Reading the run: ${line}`;
    };
    const all = ['gleaner_reader.export', address, ...args];
    const {signal} = state.stop;
    const {code, stderr} = await run(all, storageVariables(connection), say, LOCK, undefined, {signal});
    if (code !== 0) throw new CliError(stderr.at(-1) ?? `the reader ended with exit ${code}`);
    const made = join(output, `${asked.id}.json`);
    if (!(await readFeature(made))) throw new CliError(`the reader wrote no feature ${asked.id}`);
    await rename(made, path);
    await rm(output, {recursive: true});
  }

  function begin(asked: FeatureAsked, key: string, path: string): State {
    const stop = new AbortController();
    const state = {text: 'Reading the run: starting Python', asked_ms: now(), stop};
    states.set(key, state);
    const leave = () => now() - state.asked_ms > FORGET_MS && stop.abort();
    const watch = setInterval(leave, 1000).unref();
    const fail = ({message}: Error) =>
      !stop.signal.aborted && states.set(key, {text: `Failed to read: ${message}`, asked_ms: now()});
    void exportFeature(asked, path, state)
      .finally(() => [clearInterval(watch), states.delete(key)])
      .catch(fail);
    return state;
  }

  return {
    read: async (asked, mayRead) => {
      const key = hash('sha256', JSON.stringify([project, folder, bucket, asked]));
      const path = join(cacheFolder(), 'features', `${key}.json`);
      const before = states.get(key);
      const known = await readFeature(path).catch(() => rm(path));
      if (known && (asked.isComplete || now() - known.at_ms < STALE_MS)) return {feature: known.feature};
      // A reading that has ended during this one is judged by the next one.
      let state = states.get(key) ?? before;
      if (state && !state.stop && now() - state.asked_ms >= FORGET_MS) state = undefined;
      if (state) state.asked_ms = now();
      else if (mayRead && ![...states.values()].some(({stop}) => stop)) state = begin(asked, key, path);
      if (known) return {feature: known.feature};
      if (state) return {text: state.text, isUnread: false};
      return mayRead
        ? {text: 'Waiting for another feature', isUnread: false}
        : {text: UNREAD, isUnread: true};
    },
    close: () => {
      for (const {stop} of states.values()) stop?.abort();
    },
  };
}

/** Undefined without the file. */
async function readFeature(path: string): Promise<{feature: Feature; at_ms: number} | undefined> {
  const {size, mtimeMs: at_ms} = await stat(path).catch(() => ({size: -1, mtimeMs: 0}));
  if (size < 0) return undefined;
  if (size > MAX_BYTES)
    throw new CliError(`${path} has ${size} bytes, and a page shows at most ${MAX_BYTES}`);
  return {feature: parseJson(featureFile, await readFile(path, 'utf8'), path), at_ms};
}
