/** Lines of text. */

const NEWLINE = 10;

/** Lines without their newline, in batches. No other byte changes. */
export async function* lineBatches(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer[]> {
  let pending: Buffer[] = [];
  const take = (last: Buffer) => {
    const line = pending.length === 0 ? last : Buffer.concat([...pending, last]);
    pending = [];
    return line;
  };
  for await (const chunk of chunks) {
    const lines: Buffer[] = [];
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      lines.push(take(chunk.subarray(start, end)));
      start = end + 1;
    }
    if (start < chunk.length) pending.push(chunk.subarray(start));
    if (lines.length > 0) yield lines;
  }
  if (pending.length > 0) yield [take(Buffer.alloc(0))];
}

/** True for a line of spaces, tabs and carriage returns. */
export function isBlank(line: Buffer): boolean {
  for (const byte of line) if (byte !== 32 && byte !== 9 && byte !== 13) return false;
  return true;
}
