import {addAbortSignal} from 'node:stream';
import type {File} from '@google-cloud/storage';
import type {ObjectInfo} from '../ports/ports.ts';
import {BrokenAnswer, type RetryPolicy, withRetries} from './retry.ts';

/** Stored bytes from an offset on, each piece with its own offset: 0 if the answer ignores the range. Throws `BrokenAnswer` on silence. */
export async function* piecesFrom(
  file: File,
  start: number,
  {silence_ms}: RetryPolicy,
  signal: AbortSignal,
): AsyncGenerator<{chunk: Buffer; offset: number}> {
  signal.throwIfAborted();
  const stream = file.createReadStream({
    ...{decompress: false, validation: false},
    ...(start > 0 ? {start} : {}),
  });
  addAbortSignal(signal, stream);
  let offset = start;
  // An answer with status 200 ignores the range.
  stream.once('response', ({statusCode}: {statusCode: number}) => {
    if (statusCode === 200) offset = 0;
  });
  const silence = setTimeout(() => {
    stream.destroy(new BrokenAnswer(`no byte arrived for ${silence_ms / 1000} s`));
  }, silence_ms);
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      silence.refresh();
      yield {chunk, offset};
      offset += chunk.length;
    }
  } finally {
    clearTimeout(silence);
  }
}

/**
 * Stored bytes of one generation, without decompression. A broken answer is resumed after its last byte. Length and CRC-32C must match
 * `info`. `file` names the generation, and its client must have `autoRetry: false`. The count of attempts starts again after each attempt
 * that brought new bytes. `signal` ends the read.
 */
export async function readContent(
  file: File,
  info: ObjectInfo,
  policy: RetryPolicy,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const {size_bytes, crc32c} = info;
  const content = Buffer.alloc(size_bytes);
  let received_bytes = 0;

  async function receive(): Promise<void> {
    for await (const {chunk, offset} of piecesFrom(file, received_bytes, policy, signal)) {
      received_bytes = offset + chunk.length;
      if (received_bytes > size_bytes) break;
      chunk.copy(content, offset);
    }
  }

  const attempt = async () => {
    // A range after the last byte, as for an empty object, is refused with 416.
    if (received_bytes < size_bytes) await receive();
    if (received_bytes < size_bytes)
      throw new BrokenAnswer(`${received_bytes} of its ${size_bytes} bytes arrived`);
    const checksum = file.crc32cGenerator();
    checksum.update(content);
    if (received_bytes === size_bytes && checksum.validate(crc32c)) return;
    received_bytes = 0;
    throw new BrokenAnswer('its bytes differ from its checksum');
  };
  await withRetries(policy, attempt, () => received_bytes);
  return content;
}
