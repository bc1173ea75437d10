/** Which programs and libraries of an environment run on every TPU VM. */
import {closeSync, fstatSync, openSync, readSync, writeSync} from 'node:fs';
import {basename, join} from 'node:path';
import {CliError} from '../../../client/text/errors.ts';
import {filesIn} from '../../python/bundle.ts';

/** The oldest system of a TPU VM. */
const SYSTEM = 'Ubuntu 22.04';

/** Newest symbol versions in the libraries of Ubuntu 22.04. */
const NEWEST: Record<string, string> = {
  CXXABI: '1.3.13',
  GCC: '12.0.0',
  GLIBC: '2.35',
  GLIBCXX: '3.4.30',
  OPENSSL: '3.0.2',
};

/** Libraries in each image of Ubuntu 22.04: of its C and C++ programs, and the dependencies of its own Python 3.10. */
const LIBRARIES = new Set(
  [
    'ld-linux-x86-64.so.2 libc.so.6 libdl.so.2 libgcc_s.so.1 libm.so.6 libpthread.so.0 libresolv.so.2 librt.so.1',
    'libstdc++.so.6 libutil.so.1',
    'libbz2.so.1.0 libcrypt.so.1 libcrypto.so.3 libffi.so.8 liblzma.so.5 libncursesw.so.6 libpanelw.so.6 libreadline.so.8',
    'libsqlite3.so.0 libssl.so.3 libtinfo.so.6 libuuid.so.1 libz.so.1',
  ].flatMap(line => line.split(' ')),
);

/** Why a program or a library does not run on a TPU VM; undefined when it runs. `own`: file names of the environment. */
export function whyUnportable(elf: Elf, own: ReadonlySet<string>): string | undefined {
  if (elf.machine !== 'x86_64') return `is for another processor (${elf.machine})`;
  const missing = elf.needed.find(name => !LIBRARIES.has(name) && !own.has(name));
  if (missing) return `needs the library ${missing}, which ${SYSTEM} may lack`;
  const newer = elf.versions.find(isNewer);
  if (newer) {
    const [library = ''] = newer.split('_');
    return `needs ${newer}, and ${SYSTEM} has ${library}_${NEWEST[library]}`;
  }
  return undefined;
}

/** `GLIBC_2.36` is newer than `GLIBC_2.35`. Names without a number, such as `GLIBC_PRIVATE`, have no age. */
function isNewer(version: string): boolean {
  const [, library = '', numbers = ''] = /^([A-Z]+)_([0-9.]+)$/.exec(version) ?? [];
  const newest = NEWEST[library]?.split('.').map(Number);
  if (!newest) return false;
  const asked = numbers.split('.').map(Number);
  const different = asked.findIndex((number, index) => number !== (newest[index] ?? 0));
  return different >= 0 && (asked[different] ?? 0) > (newest[different] ?? 0);
}

/** Throws `CliError` for the first files of a folder that do not run on a TPU VM. */
export async function requirePortable(folder: string): Promise<void> {
  const files = await filesIn(folder);
  const own = new Set(files.map(file => basename(file)));
  const problems = files.flatMap(file => {
    const elf = readElf(join(folder, file));
    const why = elf && whyUnportable(elf, own);
    return why ? [`${file} ${why}`] : [];
  });
  if (problems.length === 0) return;
  const cure = problems.some(problem => problem.includes('/site-packages/'))
    ? 'lock another version of this package'
    : 'let this machine reach github.com, so that uv downloads a Python that runs there';
  throw new CliError(`Failed to build the worker environment: ${problems.slice(0, 3).join('; ')}: ${cure}`);
}

type Elf = {
  /** `x86_64` or the number of another machine. */
  machine: string;
  /** Shared libraries that the loader looks for, such as `libc.so.6`. */
  needed: string[];
  /** Versions of symbols that the file needs, such as `GLIBC_2.35`. */
  versions: string[];
  /** Folders that the loader searches first, and where their text lies in the file. */
  runpath?: {text: string; offset: number};
};

type Segment = {type: number; offset: number; address: number; size: number};
type Read = (offset: number, size: number) => Buffer;

const X86_64 = 62;
const LOAD = 1;
const DYNAMIC = 2;
const TAG = {
  needed: 1n,
  strings: 5n,
  rpath: 15n,
  runpath: 29n,
  versions: 0x6ffffffen,
  versionCount: 0x6fffffffn,
};

/** Reads an ELF file; undefined for any other file. Throws for a damaged one. */
export function readElf(path: string): Elf | undefined {
  const file = openSync(path, 'r');
  try {
    return parse(readerOf(file));
  } finally {
    closeSync(file);
  }
}

/** Writes a search path over a longer one. */
export function writeRunpath(path: string, runpath: NonNullable<Elf['runpath']>, text: string): void {
  const room = Buffer.byteLength(runpath.text);
  if (Buffer.byteLength(text) > room)
    throw new Error(`the search path ${runpath.text} has no room for ${text}`);
  const file = openSync(path, 'r+');
  writeSync(file, Buffer.concat([Buffer.from(text)], room), 0, room, runpath.offset);
  closeSync(file);
}

function readerOf(file: number): Read {
  const {size: all} = fstatSync(file);
  return (offset, size) => {
    const bytes = Buffer.alloc(Math.max(0, Math.min(size, all - offset)));
    readSync(file, bytes, 0, bytes.length, offset);
    return bytes;
  };
}

function parse(read: Read): Elf | undefined {
  const header = read(0, 64);
  if (header.length < 64 || header.toString('latin1', 0, 4) !== '\x7fELF') return undefined;
  if (header[4] !== 2 || header[5] !== 1) return {machine: '32 bits', needed: [], versions: []};
  const machine = header.readUInt16LE(18);
  const segments = segmentsOf(read, header);
  const dynamic = segments.find(({type}) => type === DYNAMIC);
  const elf: Elf = {machine: machine === X86_64 ? 'x86_64' : `machine ${machine}`, needed: [], versions: []};
  if (!dynamic) return elf;
  const tags = tagsOf(read(dynamic.offset, dynamic.size));
  const [strings] = tags.get(TAG.strings) ?? [];
  if (strings === undefined) return elf;
  const names = offsetOf(segments, strings);
  const text = (at: number) => textAt(read, names + at);
  elf.needed = (tags.get(TAG.needed) ?? []).map(text);
  const [search] = tags.get(TAG.runpath) ?? tags.get(TAG.rpath) ?? [];
  if (search !== undefined) elf.runpath = {text: text(search), offset: names + search};
  const [versions] = tags.get(TAG.versions) ?? [];
  const [count = 0] = tags.get(TAG.versionCount) ?? [];
  if (versions !== undefined) elf.versions = versionsOf(read, offsetOf(segments, versions), count, text);
  return elf;
}

function segmentsOf(read: Read, header: Buffer): Segment[] {
  const [offset, size, count] = [
    Number(header.readBigUInt64LE(32)),
    header.readUInt16LE(54),
    header.readUInt16LE(56),
  ];
  const table = read(offset, size * count);
  return Array.from({length: Math.floor(table.length / size)}, (_, index) => {
    const entry = table.subarray(index * size);
    const number = (at: number) => Number(entry.readBigUInt64LE(at));
    return {type: entry.readUInt32LE(0), offset: number(8), address: number(16), size: number(32)};
  });
}

function tagsOf(section: Buffer): Map<bigint, number[]> {
  const tags = new Map<bigint, number[]>();
  for (let at = 0; at + 16 <= section.length; at += 16) {
    const tag = section.readBigInt64LE(at);
    if (tag === 0n) break;
    tags.set(tag, [...(tags.get(tag) ?? []), Number(section.readBigUInt64LE(at + 8))]);
  }
  return tags;
}

/** Place in the file of an address in memory. */
function offsetOf(segments: readonly Segment[], address: number): number {
  const segment = segments.find(
    each => each.type === LOAD && address >= each.address && address < each.address + each.size,
  );
  if (!segment) throw new Error(`no segment holds the address ${address}`);
  return address - segment.address + segment.offset;
}

function textAt(read: Read, offset: number): string {
  const bytes = read(offset, 4096);
  return bytes.toString('latin1', 0, Math.max(0, bytes.indexOf(0)));
}

/** Each library has an entry with a list of versions; both name the distance to the next. */
function versionsOf(read: Read, offset: number, count: number, text: (at: number) => string): string[] {
  const versions: string[] = [];
  for (let library = offset, left = count; left > 0; left--) {
    const entry = read(library, 16);
    let version = library + entry.readUInt32LE(8);
    for (let names = entry.readUInt16LE(2); names > 0; names--) {
      const name = read(version, 16);
      versions.push(text(name.readUInt32LE(8)));
      version += name.readUInt32LE(12);
    }
    library += entry.readUInt32LE(12);
  }
  return versions;
}
