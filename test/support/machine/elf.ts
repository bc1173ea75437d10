/** A made-up ELF file with a dynamic section, as the loader of Linux reads it. */

/** Distance between a byte's place in the file and its address in memory. */
const MOVED = 0x10000;

export type ElfFacts = {
  needed?: string[];
  /** Versions of symbols by library. */
  versions?: Record<string, string[]>;
  runpath?: string;
  machine?: number;
};

export function anElf({needed = [], versions = {}, runpath, machine = 62}: ElfFacts): Buffer {
  const strings = [Buffer.alloc(1)];
  const nameOf = (text: string): number => {
    const at = strings.reduce((sum, {length}) => sum + length, 0);
    strings.push(Buffer.from(`${text}\0`));
    return at;
  };
  const entries: [number, number][] = needed.map(name => [1, nameOf(name)]);
  if (runpath !== undefined) entries.push([29, nameOf(runpath)]);
  const libraries = Object.entries(versions);
  const table = Buffer.concat(
    libraries.map(([library, names], index) =>
      versionsOf(library, names, index + 1 < libraries.length, nameOf),
    ),
  );
  const dynamicAt = 64 + 2 * 56;
  const dynamicSize = (entries.length + 4) * 16;
  const tableAt = dynamicAt + dynamicSize;
  const stringsAt = tableAt + table.length;
  entries.push([5, MOVED + stringsAt], [0x6ffffffe, MOVED + tableAt], [0x6fffffff, libraries.length], [0, 0]);
  const all = Buffer.concat(strings);
  const size = stringsAt + all.length;
  return Buffer.concat([
    header(machine),
    segment(1, 0, size),
    segment(2, dynamicAt, dynamicSize),
    ...entries.map(entry => words(...entry)),
    table,
    all,
  ]);
}

function header(machine: number): Buffer {
  const bytes = Buffer.alloc(64);
  bytes.write('\x7fELF\x02\x01\x01', 'latin1');
  bytes.writeUInt16LE(machine, 18);
  bytes.writeBigUInt64LE(64n, 32);
  bytes.writeUInt16LE(56, 54);
  bytes.writeUInt16LE(2, 56);
  return bytes;
}

function segment(type: number, offset: number, size: number): Buffer {
  const bytes = Buffer.alloc(56);
  bytes.writeUInt32LE(type, 0);
  words(offset, MOVED + offset, 0, size, size).copy(bytes, 8);
  return bytes;
}

/** The entry of a library, and behind it one for each of its versions. */
function versionsOf(
  library: string,
  names: string[],
  isFollowed: boolean,
  nameOf: (text: string) => number,
): Buffer {
  const entry = Buffer.alloc(16 + names.length * 16);
  entry.writeUInt16LE(1, 0);
  entry.writeUInt16LE(names.length, 2);
  entry.writeUInt32LE(nameOf(library), 4);
  entry.writeUInt32LE(16, 8);
  entry.writeUInt32LE(isFollowed ? entry.length : 0, 12);
  for (const [index, name] of names.entries()) {
    const at = 16 + index * 16;
    entry.writeUInt32LE(nameOf(name), at + 8);
    entry.writeUInt32LE(index + 1 < names.length ? 16 : 0, at + 12);
  }
  return entry;
}

function words(...values: number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 8);
  for (const [index, value] of values.entries()) bytes.writeBigUInt64LE(BigInt(value), index * 8);
  return bytes;
}
