/** Upload of one stream: in one request, or in pieces where the file is large. */
import {open, readFile} from 'node:fs/promises';
import {crc32cOf} from '../../client/google/hash-file.ts';
import type {Content, ResumableUploads} from '../../client/google/resumable.ts';
import {CliError} from '../../client/text/errors.ts';
import {streamObject} from '../../shared/domain/names.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import {changedError, type StreamFile} from './folder.ts';
import type {Sessions} from './sessions.ts';
import {isGzip} from './sources/lines.ts';

/** A multiple of 256 KiB, as Cloud Storage wants. Each parallel upload holds one piece in memory. */
const PIECE_BYTES = 8 << 20;
/** Sessions that Cloud Storage may end during one upload. */
const MOST_SESSIONS = 3;

export type Uploaded = 'uploaded' | 'exists';

export type Uploader = {
  objects: Objects;
  resumable: ResumableUploads;
  sessions: Sessions;
  stop: AbortSignal;
  /** Called with the bytes that Cloud Storage has taken or had. */
  moved: (bytes: number) => void;
};

/** `file`: name of the file in its folder. `path`: path of the file. */
type LocalFile = Pick<StreamFile, 'file' | 'path'>;

/** The content that an upload of the stream sends. Throws `CliError` for a stream that has changed. */
export async function contentOf(stream: StreamFile, run: string, stop: AbortSignal): Promise<Content> {
  const crc32c = await crc32cOf(stream.path, stop);
  if (stream.known && stream.known.crc32c !== crc32c) throw changedError(stream);
  const name = streamObject(run, stream.stream, stream.gzip);
  const content_type = (await isGzip(stream.path)) ? 'application/gzip' : 'application/jsonl';
  return {name, size_bytes: stream.bytes, crc32c, content_type};
}

/** Creates the object, and never replaces one. */
export async function uploadFile(to: Uploader, file: LocalFile, content: Content): Promise<Uploaded> {
  if (content.size_bytes > PIECE_BYTES) return uploadPieces(to, file, content);
  const {name, content_type} = content;
  const outcome = await to.objects.create(name, await readFile(file.path), {content_type});
  to.moved(content.size_bytes);
  return outcome === 'created' ? 'uploaded' : 'exists';
}

async function uploadPieces(to: Uploader, file: LocalFile, content: Content): Promise<Uploaded> {
  for (let round = 1; round <= MOST_SESSIONS; round++) {
    const knownSession = round === 1 ? await to.sessions.find(file.file, content) : undefined;
    // A folder may come from an archive: bytes go to the bucket alone.
    const session =
      (knownSession !== undefined && to.resumable.isOwn(knownSession) ? knownSession : undefined) ??
      (await to.resumable.begin(content));
    if (session === undefined) return 'exists';
    await to.sessions.keep(file.file, content, session);
    const outcome = await sendPieces(to, file, content, session);
    await to.sessions.forget(file.file);
    if (outcome === 'uploaded') await requireStored(to, content);
    if (outcome !== 'gone') return outcome;
  }
  throw new CliError(
    `Failed to upload ${file.path}: Cloud Storage ended ${MOST_SESSIONS} sessions; try again later`,
  );
}

/** Throws where the bucket does not have the content. */
async function requireStored({objects}: Uploader, {name, size_bytes, crc32c}: Content): Promise<void> {
  const there = await objects.head(name);
  if (there?.crc32c === crc32c && there.size_bytes === size_bytes) return;
  throw new CliError(
    `Failed to upload gs://${objects.bucket}/${name}: the bucket does not have it; try again`,
  );
}

async function sendPieces(
  {resumable, stop, moved}: Uploader,
  {path}: LocalFile,
  content: Content,
  session: string,
): Promise<Uploaded | 'gone'> {
  const file = await open(path);
  const buffer = Buffer.alloc(Math.min(PIECE_BYTES, content.size_bytes));
  let at = 0;
  try {
    for (let progress = await resumable.ask(session, content, stop); ; ) {
      if (progress.status !== 'open') {
        moved((progress.status === 'gone' ? 0 : content.size_bytes) - at);
        return progress.status === 'done' ? 'uploaded' : progress.status;
      }
      moved(progress.stored - at);
      at = progress.stored;
      const {bytesRead} = await file.read(buffer, 0, buffer.length, at);
      if (bytesRead === 0) throw new CliError(`Failed to upload ${path}: the file became shorter`);
      progress = await resumable.send(session, content, at, buffer.subarray(0, bytesRead), stop);
    }
  } finally {
    await file.close();
  }
}
