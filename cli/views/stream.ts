/** A stream with its stored shards. */
import {streamRecords} from '../../shared/control-plane/documents/documents.ts';
import {shardRecords} from '../../shared/control-plane/documents/history-documents.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Shard} from '../../shared/domain/stream/checkpoint.ts';
import type {Stream} from '../../shared/domain/stream/stream.ts';
import type {Cloud} from '../cloud/cloud.ts';
import type {Answers} from '../json/index.ts';
import {explain} from './why.ts';

const MOST_SHARDS = 100;

/** `shards`: the newest, the newest first. */
export type StreamPage = {stream: Stream; shards: Shard[]; why: Answers['why']};

export async function readStreamPage(cloud: Cloud, run: string, id: string): Promise<StreamPage | undefined> {
  const stream = await streamRecords.get(cloud.store, run, id);
  if (!stream) return undefined;
  const newest = {order_by: {field: 'shard', direction: 'desc'}, limit: MOST_SHARDS} as const;
  const shards = shardRecords.parseAll(await cloud.store.query(paths.shards(run, id), newest), () => {});
  return {stream, shards, why: await explain(cloud, `${run}/${id}`)};
}
