/** Software bill of materials of a deployment, in CycloneDX: packages of npm by `npm sbom`, and packages of Python by the locks of TPU VMs. */
import {execFile} from 'node:child_process';
import {existsSync} from 'node:fs';
import {readFile, writeFile} from 'node:fs/promises';
import {promisify} from 'node:util';
import {z} from 'zod';
import {lockText, TPU_LOCK} from '../../client/python/python.ts';
import {CliError} from '../../client/text/errors.ts';
import {jsonText} from '../../shared/contracts/printable.ts';
import {ROOT} from './functions.ts';

/** Licences of the locked packages by their own metadata. `npm run lock` writes them. */
const LICENCES = new URL('python-licences.json', import.meta.url);
const MOST_BYTES = 64 << 20;

const license = z.looseObject({
  license: z.looseObject({id: z.string().optional(), name: z.string().optional()}).optional(),
  expression: z.string().optional(),
});
const component = z.looseObject({
  name: z.string(),
  version: z.string().optional(),
  purl: z.string(),
  licenses: z.array(license).optional(),
});
const bill = z.looseObject({
  bomFormat: z.literal('CycloneDX'),
  serialNumber: z.string().optional(),
  metadata: z.looseObject({timestamp: z.string().optional(), component: z.looseObject({})}),
  components: z.array(component),
});

const licencesOfPython = z.record(z.string(), z.strictObject({version: z.string(), licence: z.string()}));

export type Bill = {components: number; licences: Record<string, number>};

/**
 * Writes the bill of this repository's packages into `path`, or reads the bill that is there. The zip of the functions has most packages
 * inside of its own files, so its lock does not name them. Equal locks give equal bytes.
 */
export async function billOf(path: string): Promise<Bill> {
  if (!existsSync(path)) await writeFile(path, await makeBill());
  const {components} = bill.parse(JSON.parse(await readFile(path, 'utf8')));
  const licences: Record<string, number> = {};
  for (const {licenses = []} of components)
    for (const {license, expression} of licenses) {
      const name = expression ?? license?.id ?? license?.name ?? 'unknown';
      licences[name] = (licences[name] ?? 0) + 1;
    }
  return {components: components.length, licences};
}

async function makeBill(): Promise<string> {
  const {serialNumber: _, metadata, components, ...rest} = bill.parse(JSON.parse(await npmSbom()));
  const {timestamp: _made, component: about, ...described} = metadata;
  const licences = licencesOfPython.parse(JSON.parse(await readFile(LICENCES, 'utf8')));
  const python = packagesIn(await lockText(TPU_LOCK)).map(({name, version}) => {
    const found = licences[name];
    if (found?.version !== version)
      throw new CliError(`The licence of ${name} ${version} is unknown: run \`npm run lock\``);
    const purl = `pkg:pypi/${name}@${version}`;
    return {
      ...{'bom-ref': purl, type: 'library', name, version, purl},
      licenses: [{license: {name: found.licence}}],
    };
  });
  return `${jsonText({...rest, metadata: {...described, component: {...about, name: 'gleaner'}}, components: [...components, ...python]})}\n`;
}

async function npmSbom(): Promise<string> {
  const args = ['sbom', '--package-lock-only', '--omit', 'dev', '--sbom-format', 'cyclonedx', '--offline'];
  try {
    // npm would leave its compiled sources in the folder of temporary files.
    const env = {...process.env, NODE_DISABLE_COMPILE_CACHE: '1'};
    const {stdout} = await promisify(execFile)('npm', args, {cwd: ROOT, env, maxBuffer: MOST_BYTES});
    return stdout;
  } catch (cause) {
    throw new CliError(
      `Failed to list the packages of the functions with npm sbom: ${(cause as Error).message}; install npm 10 or newer`,
      {cause},
    );
  }
}

/** Packages of a lock file in its order, without those of other systems than a TPU VM has. */
function packagesIn(lock: string): {name: string; version: string}[] {
  const lines = lock.matchAll(/^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)(.*)/gm);
  return [...lines].flatMap(([, name = '', version = '', marker = '']) =>
    /^ ; sys_platform == '(win32|emscripten)'/.test(marker) ? [] : [{name, version}],
  );
}
