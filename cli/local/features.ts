/** Features for the pages: `gleaner_reader.export` reads the run in the background, and the cache keeps what it writes. */
import {hash} from 'node:crypto';
import {readFile, rm, stat} from 'node:fs/promises';
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

/** A failure is forgotten when no page has asked for so long: the next visit tries again, and an open page does not. */
const FORGET_MS = 30_000;
const MAX_BYTES = 8_000_000;

export function featureReader(
  connection: Connection,
  {run = runWorkerModule, now = Date.now} = {},
): FeatureReader {
  const {bucket, project, folder = ''} = connection;
  const closing = new AbortController();
  const failures = new Map<string, {failed: string; asked_ms: number}>();
  let latest: {key: string; reading: string; hasEnded: boolean} | undefined;

  async function exportFeature(asked: FeatureAsked, output: string, say: (line: string) => void) {
    const address = `gs://${bucket}/${outputsPrefix(asked.run).replace(/\/?tpu_$/, '')}`;
    const {layer, id, name} = asked;
    const options = {to: 'features', layer, ids: id, site: name, output};
    const args = Object.entries(options).flatMap(([key, value]) => [`--${key}`, String(value)]);
    const [all, env, signal] = [
      ['gleaner_reader.export', address, ...args],
      storageVariables(connection),
      closing.signal,
    ];
    const {code, stderr} = await run(all, env, say, LOCK, undefined, {signal});
    if (code !== 0) throw new CliError(stderr.at(-1) ?? `the reader ended with exit ${code}`);
    if (!(await readFeature(output, id))) throw new CliError(`the reader wrote no feature ${id}`);
  }

  return {
    read: async asked => {
      const key = hash('sha256', JSON.stringify([project, folder, bucket, asked]));
      const output = join(cacheFolder(), 'features', key);
      const failure = failures.get(key);
      if (failure && now() - failure.asked_ms < FORGET_MS) {
        failure.asked_ms = now();
        return {failed: failure.failed};
      }
      const before = latest;
      const isBusy = before !== undefined && !before.hasEnded;
      if (isBusy && before.key === key) return {reading: before.reading};
      const feature = await readFeature(output, asked.id).catch(() => rm(output, {recursive: true}));
      if (feature) return {feature};
      // A process that was begun or has ended during this read is judged by the next one.
      if (isBusy || latest !== before) return {reading: 'another feature is read first'};
      const begun = {key, reading: 'starting Python', hasEnded: false};
      latest = begun;
      void exportFeature(asked, output, line => {
        begun.reading = line;
      })
        .catch((error: Error) => void failures.set(key, {failed: error.message, asked_ms: now()}))
        .finally(() => {
          begun.hasEnded = true;
        });
      return {reading: begun.reading};
    },
    close: () => closing.abort(),
  };
}

/** Undefined if the folder has no such file. */
async function readFeature(folder: string, id: number): Promise<Feature | undefined> {
  const path = join(folder, `${id}.json`);
  const {size} = await stat(path).catch(() => ({size: -1}));
  if (size < 0) return undefined;
  if (size > MAX_BYTES)
    throw new CliError(`${path} has ${size} bytes, and a page shows at most ${MAX_BYTES}`);
  return parseJson(featureFile, await readFile(path, 'utf8'), path);
}
