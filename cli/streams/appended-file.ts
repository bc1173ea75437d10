import {open} from 'node:fs/promises';

export type AppendedFile = Awaited<ReturnType<typeof openAppended>>;

/** Opens a new file that grows by whole buffers. `written` gets the bytes in their order. */
export async function openAppended(
  path: string,
  buffer_bytes: number,
  written: (bytes: Buffer) => void = () => {},
) {
  const handle = await open(path, 'w');
  let pending: Buffer[] = [];
  let pending_bytes = 0;
  const flush = async () => {
    const bytes = Buffer.concat(pending, pending_bytes);
    pending = [];
    pending_bytes = 0;
    written(bytes);
    for (let at = 0; at < bytes.length; ) at += (await handle.write(bytes, at)).bytesWritten;
  };
  return {
    async add(...parts: Buffer[]): Promise<void> {
      pending.push(...parts);
      for (const {length} of parts) pending_bytes += length;
      if (pending_bytes >= buffer_bytes) await flush();
    },
    /** Writes the rest, and closes the file. `durable`: the bytes are on the disk afterwards. */
    async close({durable = false}: {durable?: boolean} = {}): Promise<void> {
      await flush();
      if (durable) await handle.sync();
      await handle.close();
    },
    /** Closes a file that is not wanted any more. */
    abandon: () => handle.close().catch(() => {}),
  };
}
