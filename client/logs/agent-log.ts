/** Log of one incarnation of a TPU on one host. Its agent rewrites one object with its latest lines. */
import {ObjectTooLarge} from '../../shared/contracts/errors.ts';
import {logObject} from '../../shared/domain/names.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import {CliError} from '../text/errors.ts';
import {quoted} from '../text/output.ts';

/** An agent keeps its latest 5,000 lines, a few megabytes at most. */
const MAX_LOG_BYTES = 67_108_864;
/** Lines by which a rewritten object is compared with the object before. */
const COMPARED_LINES = 100;

export type AgentLog = ReturnType<typeof openAgentLog>;

export function openAgentLog(objects: Objects, tpu: string, incarnation: number, host: number) {
  const name = logObject(tpu, incarnation, host);
  let generation = '';
  let last: string[] = [];
  /** Lines that no earlier call returned. Undefined: the object does not exist. */
  const read = async (): Promise<string[] | undefined> => {
    const info = await objects.head(name);
    if (!info) return undefined;
    if (info.generation === generation) return [];
    const bytes = await contentOf(objects, name);
    if (!bytes) return undefined;
    generation = info.generation;
    const lines = Buffer.from(bytes).toString('utf8').split(/\r?\n/);
    if (lines.at(-1) === '') lines.pop();
    const fresh = lines.slice(countKnown(lines, last));
    last = [...last, ...fresh].slice(-COMPARED_LINES);
    return fresh;
  };
  return {name, read};
}

async function contentOf(objects: Objects, name: string): Promise<Uint8Array | undefined> {
  try {
    return await objects.read(name, {max_bytes: MAX_LOG_BYTES});
  } catch (error) {
    if (!(error instanceof ObjectTooLarge)) throw error;
    const line = `gcloud storage cat --range=-1000000 ${quoted(`gs://${objects.bucket}/${name}`)}`;
    throw new CliError(`${error.message}; read its end with \`${line}\``, {cause: error});
  }
}

/** Number of leading lines that were read before. `last`: the newest of these. The oldest lines may have left the object. */
export function countKnown(lines: readonly string[], last: readonly string[]): number {
  if (last.length === 0) return 0;
  for (let end = lines.length; end > 0; end--) {
    const most = Math.min(last.length, end);
    let same = 0;
    while (same < most && lines[end - 1 - same] === last[last.length - 1 - same]) same++;
    if (same === most) return end;
  }
  return 0;
}
