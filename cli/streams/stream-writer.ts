import {createHash} from 'node:crypto';
import {join} from 'node:path';
import {Crc32c} from '../../emulator/storage/crc32c.ts';
import {streamId} from '../../shared/domain/names.ts';
import {openAppended} from './appended-file.ts';
import type {StreamChecksum} from './checksums.ts';

const BUFFER_BYTES = 1 << 20;
const NEWLINE = Buffer.from('\n');

export function streamFile(index: number): string {
  return `stream_${streamId(index)}.jsonl`;
}

export type StreamWriter = ReturnType<typeof streamWriter>;

/** Writes `stream_000.jsonl` and so on, one after the other, with the given numbers of lines. */
export function streamWriter(folder: string, sizes: readonly number[]) {
  const done: StreamChecksum[] = [];
  /** Opens the next stream, with the digests of its bytes so far. */
  const next = async () => {
    const name = streamFile(done.length);
    const digests = {sha256: createHash('sha256'), crc32c: new Crc32c(), bytes: 0};
    const file = await openAppended(join(folder, name), BUFFER_BYTES, bytes => {
      digests.sha256.update(bytes);
      digests.crc32c.update(bytes);
      digests.bytes += bytes.length;
    });
    return Object.assign(digests, {name, file, samples: 0});
  };
  let stream: Awaited<ReturnType<typeof next>> | undefined;
  return {
    done,
    /** Adds a line without its newline. A line must follow until every stream is full. */
    async write(line: Buffer): Promise<void> {
      stream ??= await next();
      stream.samples++;
      await stream.file.add(line, NEWLINE);
      if (stream.samples < (sizes[done.length] ?? 0)) return;
      const {name, file, sha256, crc32c, samples} = stream;
      await file.close({durable: true});
      const {bytes} = stream;
      stream = undefined;
      done.push({file: name, sha256: sha256.digest('hex'), crc32c: crc32c.digest(), bytes, samples});
    },
    /** Closes an incomplete stream. */
    abandon: async () => stream?.file.abandon(),
  };
}
