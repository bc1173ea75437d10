import {streamRecords} from '../../shared/control-plane/documents/documents.ts';
import {parseOutputObject} from '../../shared/domain/names.ts';
import type {Store} from '../../shared/ports.ts';
import type {LocalDeployment} from '../local/local-deployment.ts';

/**
 * Preempts the worker of a stream without notice when the stream stores its second shard. Continues with the next stream, and
 * after the last stream with later shards. Returns a function that counts the preemptions.
 */
export function injectPreemptions(
  deployment: LocalDeployment,
  store: Store,
  run: string,
  options: {preempt: number; streams: number},
  tell: (text: string) => void,
): () => number {
  let done = 0;
  const preempt = async (stream: string): Promise<void> => {
    const found = await streamRecords.get(store, run, stream);
    const tpu = found?.lease?.worker ?? '';
    tell(`preempted ${tpu} without notice, in the middle of stream ${stream}`);
    await deployment.cloud.fault('preempt', tpu);
  };
  deployment.cloud.onObject(object => {
    const shard = parseOutputObject(object.name);
    if (shard?.run !== run || done >= options.preempt || object.metadata.final === 'true') return;
    const target = done % options.streams;
    const from = 2 + 2 * Math.floor(done / options.streams);
    if (Number(shard.stream) !== target || shard.shard < from) return;
    done++;
    preempt(shard.stream).catch((error: Error) => {
      done--;
      tell(`a preemption failed: ${error.message}`);
    });
  });
  return () => done;
}
