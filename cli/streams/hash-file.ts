import {open} from 'node:fs/promises';
import {Crc32c} from '../../shared/contracts/crc32c.ts';

const CHUNK_BYTES = 1 << 20;

/** CRC-32C of a file, in the format of Cloud Storage. */
export async function crc32cOf(path: string, stop?: AbortSignal): Promise<string> {
  const crc = new Crc32c();
  const file = await open(path);
  try {
    const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
    for (;;) {
      stop?.throwIfAborted();
      const {bytesRead} = await file.read(buffer, 0, buffer.length);
      if (bytesRead === 0) return crc.digest();
      crc.update(buffer.subarray(0, bytesRead));
    }
  } finally {
    await file.close();
  }
}
