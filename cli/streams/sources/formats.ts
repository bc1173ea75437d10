/** Formats of files of rows. */
export const FORMATS = ['jsonl', 'json', 'csv', 'parquet', 'text'] as const;
export type Format = (typeof FORMATS)[number];

const EXTENSIONS: Record<string, Format> = {
  jsonl: 'jsonl',
  ndjson: 'jsonl',
  json: 'json',
  csv: 'csv',
  tsv: 'csv',
  parquet: 'parquet',
  txt: 'text',
};

/** Format of a file by its name, such as `rows.jsonl.gz`. Undefined for an unknown extension. */
export function formatOf(file: string): Format | undefined {
  const extension = /\.([a-z]+)(?:\.gz)?$/i.exec(file)?.[1]?.toLowerCase() ?? '';
  const format = EXTENSIONS[extension];
  // Parquet packs its own pages, and is read in parts.
  return format === 'parquet' && /\.gz$/i.test(file) ? undefined : format;
}

export function isTabbed(file: string): boolean {
  return /\.tsv(?:\.gz)?$/i.test(file);
}

export const KNOWN_NAMES = '.jsonl, .ndjson, .json, .csv, .tsv, .txt (each also .gz) and .parquet';

/** Options of the command line about sources. `revision`, `split` and `config` are those of a data set of the hub. */
export type SourceOptions = {
  format?: Format | undefined;
  /** Character between the columns of CSV. */
  delimiter?: string | undefined;
  /** Key of the rows, in a JSON file of one object. */
  field?: string | undefined;
  /** Reads the folders inside of a folder. */
  recursive?: boolean | undefined;
  revision?: string | undefined;
  split?: string | undefined;
  config?: string | undefined;
  /** The most MiB of one row. */
  max_row_mib?: number | undefined;
  stop?: AbortSignal | undefined;
};
