/** Which programs and libraries of an environment run on every TPU VM. */
import {basename, join} from 'node:path';
import {CliError} from '../../../client/text/errors.ts';
import {filesIn} from '../../python/bundle.ts';
import {type Elf, readElf} from './elf.ts';

/** The oldest system of a TPU VM. */
const SYSTEM = 'Ubuntu 22.04';

/** Newest versions of symbols in the libraries of Ubuntu 22.04. */
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
