/** Limits of what is parsed. */

const MIB = 1 << 20;

export const LIMITS = {
  /** One row of a data set: a line, a record of CSV, an element of a JSON array, or a file of one object. `--max-row-mib` raises it. */
  row_bytes: 256 * MIB,
  /** Objects and lists inside of each other, in a row of JSON. */
  json_depth: 900,
  answer_bytes: 64 * MIB,
  error_bytes: 64 << 10,
} as const;

/** The largest `--max-row-mib`: a text of Node has at most half a GiB. */
export const MOST_ROW_MIB = 500;
