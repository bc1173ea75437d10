import {streamRecords} from '../../shared/control-plane/documents/documents.ts';
import {parseOutputObject} from '../../shared/domain/names.ts';
import type {Store} from '../../shared/ports/ports.ts';
import type {LocalDeployment} from '../local/local-deployment.ts';

/**
 * Preempts the worker of a stream without notice when the stream stores its second shard, and where more preemptions than
 * streams are asked for also its fourth and later ones. Returns a function that counts the preemptions.
 */
export function injectPreemptions(
  deployment: LocalDeployment,
  store: Store,
  run: string,
  options: {preempt: number; streams: number},
  tell: (text: string) => void,
): () => number {
  let done = 0;
  const times = new Map<string, number>();
  const preempt = async (stream: string): Promise<void> => {
    const found = await streamRecords.get(store, run, stream);
    const tpu = found?.lease?.worker ?? '';
    tell(`preempted ${tpu} without notice, in the middle of stream ${stream}`);
    await deployment.cloud.fault('preempt', tpu);
  };
  deployment.cloud.onObject(object => {
    const shard = parseOutputObject(object.name);
    if (shard?.run !== run || done >= options.preempt || object.metadata.final === 'true') return;
    const earlier = times.get(shard.stream) ?? 0;
    if (earlier >= options.preempt / options.streams || shard.shard < 2 + 2 * earlier) return;
    times.set(shard.stream, earlier + 1);
    done++;
    preempt(shard.stream).catch((error: Error) => {
      done--;
      times.set(shard.stream, earlier);
      tell(`a preemption failed: ${error.message}`);
    });
  });
  return () => done;
}
