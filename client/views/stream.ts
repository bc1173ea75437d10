/** A stream with its stored shards. */
import {shardRecords, streamRecords} from '../../shared/control-plane/documents/documents.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Shard} from '../../shared/domain/records/shard.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import type {Cloud} from '../cloud/cloud.ts';
import type {Answers} from '../json/index.ts';
import {type Rejects, readRejects} from './run-page.ts';
import {explain} from './why.ts';

const MOST_SHARDS = 100;

const MOST_REJECTED = 1000;

/** `shards`: the newest, the newest first. `rejects`: empty for a stream without rejected lines. */
export type StreamPage = {stream: Stream; shards: Shard[]; rejects: Rejects[]; why: Answers['why']};

export async function readStreamPage(cloud: Cloud, run: string, id: string): Promise<StreamPage | undefined> {
  const stream = await streamRecords.get(cloud.store, run, id);
  if (!stream) return undefined;
  const newest = {order_by: {field: 'shard', direction: 'desc'}, limit: MOST_SHARDS} as const;
  const shards = shardRecords.parseAll(await cloud.store.query(paths.shards(run, id), newest), () => {});
  const rejects = await readRejects(cloud.objects, [stream], {streams: 1, lines: MOST_REJECTED});
  return {stream, shards, rejects, why: await explain(cloud, `${run}/${id}`)};
}
