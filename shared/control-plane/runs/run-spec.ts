import {MAX_SPEC_BYTES, parseRunSpec, type RunSpecInput} from '../../contracts/spec.ts';
import {specObject} from '../../domain/names.ts';
import type {Objects} from '../../ports.ts';

/** Reads the `run.json` of a run; undefined without one. Throws `Rejected` for an invalid one. */
export async function readRunSpec(objects: Objects, run: string): Promise<RunSpecInput | undefined> {
  const name = specObject(run);
  const text = await readText(objects, name, MAX_SPEC_BYTES);
  return text === undefined ? undefined : parseRunSpec(text, name);
}

/** Reads the text of an object; undefined if the object does not exist. */
export async function readText(
  objects: Objects,
  name: string,
  max_bytes: number,
): Promise<string | undefined> {
  const bytes = await objects.read(name, {max_bytes});
  return bytes && Buffer.from(bytes).toString('utf8');
}
