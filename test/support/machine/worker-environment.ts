/** The archive of a worker's environment without libtpu, built once. As a program, prints where the archive is, as JSON. */
import {buildEnvironment, type Environment} from '../../../cli/build/environment/environment.ts';
import {LOCK} from '../../../client/python/python.ts';

export function workerEnvironment(): Promise<Environment> {
  return buildEnvironment({say: line => console.error(line), lock: LOCK});
}

if (import.meta.main) console.log(JSON.stringify(await workerEnvironment()));
