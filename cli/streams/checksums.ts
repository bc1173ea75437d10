/** `checksums.json`: the content of each stream of a folder, and where the content came from. */
import {readFile} from 'node:fs/promises';
import {join} from 'node:path';
import {z} from 'zod';
import {CliError} from '../../client/text/errors.ts';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';

export const CHECKSUMS_FILE = 'checksums.json';
export const WORK_FOLDER = '.create';

const streamChecksum = z.strictObject({
  file: z.string(),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  /** Base64 of the big-endian value, as Cloud Storage writes it. */
  crc32c: z.string(),
  bytes: z.number().int().min(0),
  samples: z.number().int().min(0),
});

const source = z.strictObject({
  source: z.string(),
  /** Commit of a repository of Hugging Face. */
  commit: z.string().optional(),
  sha256: z.string().optional(),
  bytes: z.number().int().min(0),
});

export const checksums = z.strictObject({
  version: z.literal(1),
  streams: z.array(streamChecksum),
  samples: z.number().int().min(0),
  sources: z.array(source),
  /** Options that chose and changed the rows. */
  options: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.array(z.string())])),
});

export type Checksums = z.infer<typeof checksums>;
export type StreamChecksum = z.infer<typeof streamChecksum>;

/** Checksums of a folder; undefined without the file. */
export async function readChecksums(folder: string): Promise<Checksums | undefined> {
  const file = join(folder, CHECKSUMS_FILE);
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new CliError(`Failed to read ${file}: ${(error as Error).message}`, {cause: error});
  }
  try {
    return parseJson(checksums, text, file);
  } catch (error) {
    throw new CliError(
      `${(error as Error).message}; create the streams again with \`gleaner streams create --force\``,
      {cause: error},
    );
  }
}
