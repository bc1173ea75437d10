/** Sets objects aside that have the name of a shard and are not that shard. The stream continues, and a person can inspect them. */
import {setAsideObject} from '../../domain/names.ts';
import type {Unfit} from '../../domain/stream/checkpoint.ts';
import type {ObjectInfo} from '../../ports/ports.ts';
import type {Deps} from '../deps.ts';
import {recordEventNow} from '../documents/event-log.ts';

type Named = {run: string; stream: string};

/** Moves each unfit object out of the folder of its stream. `objects`: the listing that had them. Nothing is deleted. */
export async function setAside(
  deps: Deps,
  {run, stream}: Named,
  unfit: readonly Unfit[],
  objects: readonly ObjectInfo[],
): Promise<void> {
  for (const {object, reason} of unfit) {
    const generation = objects.find(({name}) => name === object)?.generation;
    if (generation === undefined) continue;
    const to = setAsideObject(object, generation);
    const text = `${object} is set aside as ${to}, and ${run}/${stream} goes on: ${reason}`;
    deps.log('ERROR', text, {run, stream, object});
    // The event is written first: without it, people would not find an object that was moved.
    await recordEventNow(deps, {kind: 'stream', run, stream, object, text, fold: to});
    await deps.objects.move(object, generation, to);
  }
}
