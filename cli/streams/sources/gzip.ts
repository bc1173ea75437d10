import {open} from 'node:fs/promises';

/** True for a file that begins as gzip does. The name says nothing: no line of JSON and no text begins so. */
export async function isGzip(path: string): Promise<boolean> {
  const file = await open(path);
  try {
    const {buffer, bytesRead} = await file.read(Buffer.alloc(2), 0, 2, 0);
    return bytesRead === 2 && buffer[0] === 0x1f && buffer[1] === 0x8b;
  } finally {
    await file.close();
  }
}
