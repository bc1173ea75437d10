/** Terraform in a copy of `terraform/`: a test or a mocked plan leaves no file in the folder that a deployment uses. */
import {existsSync} from 'node:fs';
import {cp, mkdtemp, rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {runTerraform} from './run-terraform.ts';
import {type Refusals, startStandIn} from './stand-in.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** Providers that `terraform init` has installed for a deployment. */
const INSTALLED = join(ROOT, 'terraform/.terraform/providers');
/** Files that the configuration reads, and its tests. */
const COPIED = ['terraform', 'functions/triggers.json'];

export type Providers = 'installed' | 'stand-in';

type Workspace = {
  folder: string;
  /** The installed providers, or the stand-in, which knows the schemas alone. */
  providers: Providers;
  /** Runs terraform in the folder, and returns the lines of stdout and stderr. */
  terraform(...args: string[]): Promise<{code: number; lines: string[]}>;
  close(): Promise<void>;
};

/**
 * Copies the configuration and initialises the copy, without a backend. Uses the providers that a deployment has installed, or else the
 * stand-in, which refuses what `refusals` names. Throws `CliError` without terraform.
 */
export async function openWorkspace(refusals: Refusals = () => []): Promise<Workspace> {
  const copy = await mkdtemp(join(tmpdir(), 'gleaner-terraform-'));
  const folder = join(copy, 'terraform');
  let standIn: Awaited<ReturnType<typeof startStandIn>> | undefined;
  const terraform = async (...args: string[]) => {
    const provided = standIn ? {TF_REATTACH_PROVIDERS: standIn.reattach} : {};
    const env = {TF_DATA_DIR: join(folder, '.terraform'), ...provided};
    const {code, stdout, stderr} = await runTerraform(args, {folder, env});
    return {code, lines: (stdout + stderr).trimEnd().split('\n')};
  };
  const close = async () => {
    await standIn?.close();
    await rm(copy, {recursive: true, force: true});
  };
  const init = (...from: string[]) => terraform('init', '-backend=false', '-input=false', ...from);
  try {
    const isWanted = (source: string) => !source.includes('/.terraform');
    for (const path of COPIED)
      await cp(join(ROOT, path), join(copy, path), {recursive: true, filter: isWanted});
    const isInstalled = existsSync(INSTALLED) && (await init(`-plugin-dir=${INSTALLED}`)).code === 0;
    if (isInstalled) return {folder, providers: 'installed', terraform, close};
    standIn = await startStandIn(refusals);
    const {code, lines} = await init();
    if (code !== 0) throw new Error(`Failed to initialise terraform/:\n${lines.join('\n')}`);
    return {folder, providers: 'stand-in', terraform, close};
  } catch (error) {
    await close();
    throw error;
  }
}
