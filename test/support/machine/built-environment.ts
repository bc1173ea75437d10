import {createHash} from 'node:crypto';
import {mkdirSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {type Environment, keyOf} from '../../../cli/build/environment/environment.ts';
import {PINNED} from '../../../cli/build/environment/portable-python.ts';
import {TPU_LOCK} from '../../../client/python/python.ts';

/** Gives XDG_CACHE_HOME `cache` a worker environment of a few bytes, so that a deployment builds none. */
export async function putBuiltEnvironment(cache: string): Promise<Environment> {
  const key = await keyOf(TPU_LOCK, {identity: PINNED});
  const folder = join(cache, 'gleaner', 'environments', key);
  const archive = join(folder, 'environment.tar.gz');
  const facts = {sha256: createHash('sha256').update('archive').digest('hex'), size_bytes: 7};
  mkdirSync(join(cache, 'gleaner', 'python', PINNED), {recursive: true});
  mkdirSync(folder, {recursive: true});
  writeFileSync(archive, 'archive');
  writeFileSync(join(folder, 'environment.json'), JSON.stringify(facts));
  return {...facts, key, archive};
}
