/** Limits of what is parsed. Work and memory stay in proportion to the bytes of an input, whatever the input claims. */

const MIB = 1 << 20;

export const LIMITS = {
  /** One row of a data set: a line, a record of CSV, an element of a JSON array, or a file of one object. `--max-row-mib` raises it. */
  row_bytes: 256 * MIB,
  /** Columns of a table. */
  columns: 20_000,
  /** Objects and lists inside of each other, in a row of JSON. */
  json_depth: 900,
  /** Levels of a schema of Parquet. */
  schema_depth: 100,
  /** Footer of a Parquet file. */
  footer_bytes: 64 * MIB,
  /** Values of a row group of Parquet in the columns that are read, times their levels. */
  group_values: 64 * MIB,
  /** Unpacked pages of a row group in the columns that are read. */
  group_bytes: 2048 * MIB,
  /** Rows, values or unpacked bytes for each stored byte, beyond the first `free_units`: a row group may be all nulls. */
  ratio: 1000,
  free_units: 16 * MIB,
  /** An answer of the hub's API. */
  answer_bytes: 64 * MIB,
  /** Text of an error of the hub. */
  error_bytes: 64 << 10,
} as const;

/** The largest `--max-row-mib`: a text of Node has at most half a GiB. */
export const MOST_ROW_MIB = 500;

/** True if so many units of this many bytes are more than an honest file has. */
export function isInflated(units: number, stored_bytes: number): boolean {
  return units > LIMITS.free_units + stored_bytes * LIMITS.ratio;
}
