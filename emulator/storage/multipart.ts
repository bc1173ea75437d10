import {ApiError} from '../http/errors.ts';

const headLimit = 1 << 20;
const lineEnd = Buffer.from('\n');

export type Related = {
  /** First part: the JSON resource. */
  metadata: string;
  /** Headers of the second part, with names in lower case. */
  mediaHeaders: Record<string, string>;
  /** Chunks of the second part in the order of arrival. */
  media: AsyncIterable<Buffer>;
};

/**
 * Reads `multipart/related` of Google's clients: JSON, then the bytes. Lines end with CRLF, or with LF if Python's email generator, which
 * gcloud uses, wrote them. The first boundary shows which.
 */
export async function readRelated(body: AsyncIterable<Buffer>, content_type: string): Promise<Related> {
  const boundary = /boundary=(?:"([^"]+)"|'([^']+)'|([^;\s]+))/i.exec(content_type)?.slice(1).find(Boolean);
  if (!boundary) throw malformed('its Content-Type names no boundary');
  const reader = new PartReader(body);
  const first = await reader.until(lineEnd);
  if (first.trim() !== `--${boundary}`) throw malformed('it does not start with its boundary');
  const newline = first.endsWith('\r') ? '\r\n' : '\n';
  const delimiter = Buffer.from(`${newline}--${boundary}`);

  await reader.headers();
  const metadata = await reader.until(delimiter);
  await reader.until(lineEnd);
  const mediaHeaders = await reader.headers();
  return {metadata, mediaHeaders, media: reader.rest(delimiter)};
}

function malformed(reason: string): ApiError {
  return new ApiError(400, `Failed to read the multipart body: ${reason}`, {reason: 'badRequest'});
}

class PartReader {
  readonly #chunks: AsyncIterator<Buffer>;
  #held: Buffer = Buffer.alloc(0);

  constructor(body: AsyncIterable<Buffer>) {
    this.#chunks = body[Symbol.asyncIterator]();
  }

  async #more(): Promise<boolean> {
    const {done, value} = await this.#chunks.next();
    if (done) return false;
    this.#held = this.#held.length === 0 ? value : Buffer.concat([this.#held, value]);
    return true;
  }

  /** Text before `mark`. The reader continues after `mark`. */
  async until(mark: Buffer): Promise<string> {
    for (;;) {
      const at = this.#held.indexOf(mark);
      if (at >= 0) {
        const text = this.#held.subarray(0, at).toString('utf8');
        this.#held = this.#held.subarray(at + mark.length);
        return text;
      }
      if (this.#held.length > headLimit)
        throw malformed(`a part before the bytes is larger than ${headLimit} bytes`);
      if (!(await this.#more())) throw malformed('it ends before its second part');
    }
  }

  async headers(): Promise<Record<string, string>> {
    const headers: Record<string, string> = {};
    for (;;) {
      const line = (await this.until(lineEnd)).trimEnd();
      if (line === '') return headers;
      const colon = line.indexOf(':');
      if (colon > 0) headers[line.slice(0, colon).trim().toLowerCase()] = line.slice(colon + 1).trim();
    }
  }

  /** Bytes before the delimiter. Answers 400 to a body that ends without the delimiter. */
  async *rest(delimiter: Buffer): AsyncGenerator<Buffer> {
    for (;;) {
      const at = this.#held.indexOf(delimiter);
      if (at >= 0) {
        if (at > 0) yield this.#held.subarray(0, at);
        // Reading the body to its end leaves the connection usable.
        while (!(await this.#chunks.next()).done);
        return;
      }
      const sure = this.#held.length - delimiter.length + 1;
      if (sure > 0) {
        yield this.#held.subarray(0, sure);
        this.#held = this.#held.subarray(sure);
      }
      if (!(await this.#more())) throw malformed('it ends without its closing boundary');
    }
  }
}
