import {hash} from 'node:crypto';
import type {Objects} from '../../shared/ports/ports.ts';
import {CliError} from '../text/errors.ts';

/** Creates the object. Throws `CliError` with both digests where it exists with other bytes. */
export async function createOnce(
  objects: Objects,
  name: string,
  bytes: Uint8Array,
  content_type: string,
): Promise<void> {
  if ((await objects.create(name, bytes, {content_type})) === 'created') return;
  const there = await objects.head(name);
  const isAsLong = there?.size_bytes === bytes.length;
  const stored = isAsLong ? await objects.read(name, {max_bytes: bytes.length}) : undefined;
  if (stored && Buffer.compare(stored, bytes) === 0) return;
  const what = stored
    ? `bytes of sha256 ${hash('sha256', stored)}`
    : `${there?.size_bytes ?? 'no'} bytes now`;
  throw new CliError(
    `Failed to create gs://${objects.bucket}/${name}: it has ${what}, and these are ${bytes.length} bytes of sha256 ${hash('sha256', bytes)}; find out who wrote it`,
  );
}
