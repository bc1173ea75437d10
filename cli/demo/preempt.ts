import {streamRecords} from '../../shared/control-plane/state/documents.ts';
import {parseOutputObject} from '../../shared/domain/names.ts';
import type {Store} from '../../shared/ports.ts';
import type {Home} from '../demo-cloud.ts';

/**
 * Preempts the worker of a stream without notice at the moment its second shard is stored, then of the next stream, and
 * again further on. Returns how many it has done.
 */
export function injectPreemptions(
  home: Home,
  store: Store,
  run: string,
  options: {preempt: number; streams: number},
  shout: (text: string) => void,
): () => number {
  let done = 0;
  home.cloud.onObject(object => {
    const shard = parseOutputObject(object.name);
    if (shard?.run !== run || done >= options.preempt || object.metadata.final === 'true') return;
    const target = done % options.streams;
    const from = 2 + 2 * Math.floor(done / options.streams);
    if (Number(shard.stream) !== target || shard.shard < from) return;
    done++;
    streamRecords
      .get(store, run, shard.stream)
      .then(stream => home.cloud.fault('preempt', stream?.lease?.worker ?? ''))
      .then(
        what => shout(`${what}, in the middle of stream ${shard.stream}`),
        (error: Error) => {
          done--;
          shout(`No preemption this time: ${error.message}`);
        },
      );
  });
  return () => done;
}
