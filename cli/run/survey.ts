/** Surveys of the streams of runs: documents, objects, and streams whose object is gone from the bucket while documents or shards remain. */

import {forEachConcurrently} from '../../shared/control-plane/calls/concurrency.ts';
import {streamRecords} from '../../shared/control-plane/documents/documents.ts';
import {
  compareStream,
  originsAmong,
  type Sources,
  type StreamSurvey,
} from '../../shared/control-plane/streams/compare-streams.ts';
import {type StreamObject, streamsAmong} from '../../shared/control-plane/streams/register-stream.ts';
import {
  DEFAULT_RUN,
  datasetPrefix,
  isRunId,
  manifestObject,
  outputPrefix,
  parseDatasetObject,
  parseOutputObject,
  paths,
  streamObject,
} from '../../shared/domain/names.ts';
import type {Objects} from '../../shared/ports/ports.ts';

const OUTPUTS = 'activations/';

export async function runsInBucket({objects}: Pick<Sources, 'objects'>): Promise<string[]> {
  const runs = new Set<string>();
  for (const {name} of await objects.list('datasets/')) {
    const dataset = parseDatasetObject(name);
    if (dataset.kind === 'stream') runs.add(dataset.run);
  }
  return [...runs].sort();
}

async function streamsOf(objects: Objects, run: string): Promise<StreamObject[]> {
  return streamsAmong(await objects.list(datasetPrefix(run))).filter(each => each.run === run);
}

export async function runsAnywhere({store, objects}: Sources): Promise<string[]> {
  const documents = await store.query('runs');
  const runs = [...(await runsInBucket({objects})), ...(await runsWithOutput(objects))];
  return [...new Set([...runs, ...documents.map(({id}) => id)])].sort();
}

/** Lists one name of each run: a run may have a million shards. */
async function runsWithOutput(objects: Objects): Promise<Set<string>> {
  const runs = new Set<string>();
  for (let start = OUTPUTS; ; ) {
    const [next] = await objects.list(OUTPUTS, {start, limit: 1});
    if (!next) return runs;
    const [, segment = '', inside] = next.name.split('/');
    if (inside !== undefined && isRunId(segment)) {
      runs.add(segment);
      // `0` follows `/`: skips all other names of this run.
      start = `${OUTPUTS}${segment}0`;
    } else {
      runs.add(DEFAULT_RUN);
      start = segment.startsWith('tpu_') ? `${OUTPUTS}tpu\`` : `${next.name} `;
    }
  }
}

/** Compares the documents of each stream of a run with the bucket, and changes nothing. */
export async function surveyRun(deps: Sources, run: string): Promise<StreamSurvey[]> {
  const surveys: StreamSurvey[] = [];
  await forEachConcurrently(await originsAmong(deps, await streamsOf(deps.objects, run)), async object =>
    surveys.push((await compareStream(deps, run, object)).survey),
  );
  return surveys.sort((one, other) => (one.object < other.object ? -1 : 1));
}

/** Surveys the streams that documents or shards know and `found` lacks. */
export async function goneStreams(
  {store, objects, log}: Sources,
  run: string,
  found: readonly StreamSurvey[],
): Promise<StreamSurvey[]> {
  const documents = streamRecords.parseAll(await store.query(paths.streams(run)), error =>
    log('WARNING', error.message, {run}),
  );
  const registered = new Map(documents.map(document => [document.stream, document]));
  const streams = new Set(registered.keys());
  if (found.length === 0 && registered.size === 0)
    for (const {name} of await objects.list(manifestObject(run).replace(/manifest\.json$/, 'tpu_'))) {
      const output = parseOutputObject(name);
      if (output) streams.add(output.stream);
    }
  const present = new Set(found.map(({stream}) => stream));
  const gone = [...streams].filter(stream => !present.has(stream));
  const surveys: StreamSurvey[] = [];
  await forEachConcurrently(gone, async stream => {
    const listing = await objects.list(outputPrefix(run, stream));
    const object = registered.get(stream)?.object ?? streamObject(run, stream);
    const known_shards = registered.get(stream)?.total_shards ?? 0;
    const numbers = new Set(listing.flatMap(({name}) => parseOutputObject(name)?.shard ?? []));
    const last = [...numbers].reduce((most, number) => Math.max(most, number), known_shards);
    let first = 1;
    while (numbers.has(first)) first += 1;
    const hole = first <= last ? `; shard ${first} is missing, ${numbers.size} of ${last} there` : '';
    surveys.push({
      ...{run, stream, object, finding: 'gone'},
      stored_shards: numbers.size,
      known_shards,
      why: `its stream object ${object} is gone${hole}`,
    });
  });
  return surveys.sort((one, other) => (one.stream < other.stream ? -1 : 1));
}
