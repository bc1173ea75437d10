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

type Reading = {key: string; text: string; asked_ms: number; stop: AbortController};

export function featureReader(
  connection: Connection,
  {run = runWorkerModule, now = Date.now} = {},
): FeatureReader {
  const {bucket, project, folder = ''} = connection;
  const failures = new Map<string, {failed: string; asked_ms: number}>();
  let reading: Reading | undefined;

  /** Writes beside the file and renames, because `local up` and `gleaner dashboard` may read the same feature. */
  async function exportFeature({run: name, ...asked}: FeatureAsked, path: string, begun: Reading) {
    const output = `${path}.${process.pid}`;
    const removed = [output, `${output}.unfinished`].map(each => rm(each, {recursive: true, force: true}));
    await Promise.all(removed);
    const address = `gs://${bucket}/${outputsPrefix(name).replace(/\/?tpu_$/, '')}`;
    const options = {to: 'features', layer: asked.layer, ids: asked.id, site: asked.name, output};
    const args = Object.entries(options).flatMap(([key, value]) => [`--${key}`, String(value)]);
    const say = (line: string) => {
      begun.text = line;
    };
    const all = ['gleaner_reader.export', address, ...args];
    const {signal} = begun.stop;
    const {code, stderr} = await run(all, storageVariables(connection), say, LOCK, undefined, {signal});
    if (code !== 0) throw new CliError(stderr.at(-1) ?? `the reader ended with exit ${code}`);
    const made = join(output, `${asked.id}.json`);
    if (!(await readFeature(made))) throw new CliError(`the reader wrote no feature ${asked.id}`);
    await rename(made, path);
    await rm(output, {recursive: true});
  }

  function begin(asked: FeatureAsked, key: string, path: string): void {
    const begun = {key, text: 'starting Python', asked_ms: now(), stop: new AbortController()};
    reading = begun;
    const leave = () => now() - begun.asked_ms > FORGET_MS && begun.stop.abort();
    const watch = setInterval(leave, 1000).unref();
    void exportFeature(asked, path, begun)
      .catch((error: Error) => {
        if (!begun.stop.signal.aborted) failures.set(key, {failed: error.message, asked_ms: now()});
      })
      .finally(() => {
        clearInterval(watch);
        reading = undefined;
      });
  }

  return {
    read: async (asked, mayRead) => {
      const key = hash('sha256', JSON.stringify([project, folder, bucket, asked]));
      const path = join(cacheFolder(), 'features', `${key}.json`);
      const before = reading;
      const known = await readFeature(path).catch(() => rm(path));
      if (known && (asked.isComplete || now() - known.at_ms < STALE_MS)) return {feature: known.feature};
      const failure = failures.get(key);
      const hasFailed = failure !== undefined && now() - failure.asked_ms < FORGET_MS;
      if (hasFailed) failure.asked_ms = now();
      if (reading?.key === key) reading.asked_ms = now();
      // A reading that has ended during this one is judged by the next one.
      else if (!before && !reading && mayRead && !hasFailed) begin(asked, key, path);
      if (known) return {feature: known.feature};
      if (hasFailed) return {failed: failure.failed};
      const current = reading ?? before;
      if (!current) return {isUnread: true};
      return {reading: current.key === key ? current.text : 'waiting for another feature'};
    },
    close: () => reading?.stop.abort(),
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
