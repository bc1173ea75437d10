import {Crc32c} from '../../shared/contracts/crc32c.ts';
import type {Objects} from '../../shared/ports.ts';
import {CliError} from '../terminal/errors.ts';

/** Creates the object. Throws `CliError` with both checksums where it exists with other bytes. */
export async function createOnce(
  objects: Objects,
  name: string,
  bytes: Uint8Array,
  content_type: string,
): Promise<void> {
  if ((await objects.create(name, bytes, {content_type})) === 'created') return;
  const there = await objects.head(name);
  const digest = new Crc32c();
  digest.update(bytes);
  const crc32c = digest.digest();
  if (there?.crc32c === crc32c && there.size_bytes === bytes.length) return;
  const stored = there ? `${there.size_bytes} bytes of crc32c ${there.crc32c}` : 'no bytes now';
  throw new CliError(
    `Failed to create gs://${objects.bucket}/${name}: it has ${stored}, and these are ${bytes.length} bytes of crc32c ${crc32c}; find out who wrote it`,
  );
}
