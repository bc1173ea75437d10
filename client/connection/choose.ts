/**
 * Which cloud a command talks to: the one that an option or GLEANER_CLOUD names, otherwise that of the nearest folder. A folder only proposes:
 * a project is used from a folder after its user has agreed once.
 */
import {existsSync, statSync} from 'node:fs';
import {dirname, join, resolve} from 'node:path';
import {isOwnFolder} from '../../emulator/state/own-folder.ts';
import {isConsent} from '../text/ask.ts';
import {CliError} from '../text/errors.ts';
import {complain} from '../text/output.ts';
import {DEFAULT_DIR} from './address.ts';
import {type CloudName, cloudName, cloudText, homeFolder, homeText, parseCloudName} from './cloud-name.ts';
import {type Decision, decide, readDecisions} from './decisions.ts';
import {projectIn, SETTINGS_FILE} from './settings-file.ts';

/** `origin`: what decided. `settings`: the settings file of the deployment, if a folder has it. */
export type Choice = CloudName & {origin: string; settings?: string | undefined};

/** Nothing names or proposes a cloud. */
export class NoCloud extends CliError {}

type Named = {cloud?: string | undefined; dir?: string | undefined};

/** Throws `CliError` without a cloud, with two in one folder, and for a project that the user has not agreed to. */
export async function chooseCloud({cloud, dir}: Named): Promise<Choice> {
  if (cloud !== undefined) return named(cloud, '--cloud');
  if (dir !== undefined) return {kind: 'local', dir: resolve(dir), origin: '--dir'};
  const {GLEANER_CLOUD} = process.env;
  if (GLEANER_CLOUD) return named(GLEANER_CLOUD, 'GLEANER_CLOUD');
  const choice = await currentCloud(agree);
  if (choice) return choice;
  throw new NoCloud(
    'No cloud is chosen here: start one on this machine with `gleaner local up`, or choose one with --cloud or `gleaner cloud use`',
  );
}

/** The cloud of the nearest folder that has one. `permit` may refuse a project that its user has not agreed to. */
export async function currentCloud(permit: typeof agree = async () => {}): Promise<Choice | undefined> {
  const decisions = new Map(readDecisions().map(made => [made.folder, made]));
  for (const folder of upwards(process.cwd())) {
    const choice = await ofFolder(folder, permit, decisions.get(folder));
    if (choice) return choice;
  }
  return undefined;
}

/** Chooses a cloud for the current folder. */
export function useCloud(given: string): Choice {
  const choice = named(given, 'gleaner cloud use');
  if (choice.kind === 'local' && !isOwnFolder(choice.dir))
    throw new CliError(
      `There is no local cloud of yours in ${homeText(choice.dir)}: \`gleaner cloud list\` lists those that you have`,
    );
  const folder = process.cwd();
  decide({folder, cloud: cloudName(choice), offered: offersIn(folder).map(cloudName)});
  return choice;
}

/** A cloud that a person names. `local` is the nearest local cloud. */
function named(given: string, origin: string): Choice {
  if (given !== 'local') return withSettings({...parseCloudName(given), origin});
  for (const folder of upwards(process.cwd())) {
    const local = offersIn(folder).find(({kind}) => kind === 'local');
    if (local) return {...local, origin};
  }
  throw new NoCloud(
    'No folder from here up to your home has a local cloud: start one with `gleaner local up`, or name its folder',
  );
}

/** Adds the settings file of a deployment, if this folder or one that its user decided on has it. */
function withSettings(choice: Choice): Choice {
  if (choice.kind === 'local') return choice;
  const name = cloudName(choice);
  const decided = readDecisions().flatMap(({folder, cloud}) => (cloud === name ? [folder] : []));
  const folders = [...upwards(process.cwd()), ...decided];
  const files = folders.map(folder => join(folder, SETTINGS_FILE)).filter(existsSync);
  return {...choice, settings: files.find(file => names(file, name))};
}

/** False for a file that cannot be read: the person has named the cloud. */
function names(file: string, name: string): boolean {
  try {
    return cloudName(projectIn(file)) === name;
  } catch {
    return false;
  }
}

/** The folder and those above it, up to the home of the user, or to the first that others own or can write to. */
function* upwards(start: string): Generator<string> {
  const home = homeFolder();
  for (let folder = start; ; folder = dirname(folder)) {
    yield folder;
    const above = statSync(dirname(folder));
    if (folder === home || folder === dirname(folder)) return;
    if (above.uid !== process.getuid?.() || (above.mode & 0o002) !== 0) return;
  }
}

function offersIn(folder: string): Choice[] {
  const dir = join(folder, DEFAULT_DIR);
  const settings = join(folder, SETTINGS_FILE);
  return [
    ...(existsSync(dir) ? [{kind: 'local' as const, dir, origin: 'the nearest folder'}] : []),
    ...(existsSync(settings) ? [{...projectIn(settings), settings, origin: settings}] : []),
  ];
}

/** Undefined for a folder that neither offers a cloud nor has a decision. */
async function ofFolder(folder: string, permit: typeof agree, made?: Decision): Promise<Choice | undefined> {
  const offers = offersIn(folder);
  const isNew = (each: Choice) => !made?.offered.includes(cloudName(each));
  if (made && !offers.some(isNew))
    return withSettings({...parseCloudName(made.cloud), origin: `gleaner cloud use in ${homeText(folder)}`});
  const [offer, other] = offers;
  if (offer && other)
    throw new CliError(
      `${homeText(folder)} has two clouds: ${offers.map(cloudText).join('; and ')}. Choose one for this folder with ${offers.map(each => `\`gleaner cloud use ${nameHere(each)}\``).join(' or ')}, or for one command with --cloud`,
    );
  if (offer?.kind === 'project') await permit(folder, offer);
  return offer;
}

/** Asks once for each folder. A person who clones a repository has not decided to send data to the project in its settings. */
async function agree(folder: string, offer: Choice): Promise<void> {
  const text = `${homeText(offer.settings ?? folder)} names ${cloudText(offer)}, which no command has used from this folder yet`;
  const name = cloudName(offer);
  const where = folder === process.cwd() ? '' : ` in ${homeText(folder)}`;
  if (!process.stdin.isTTY)
    throw new CliError(
      `${text}: permit it with \`gleaner cloud use ${name}\`${where}, or for one command with --cloud ${name}`,
    );
  complain(`${text}.`);
  if (!(await isConsent(`Use ${cloudText(offer)}, from this folder`)))
    throw new CliError('Nothing is changed: the answer was not yes');
  decide({folder, cloud: name, offered: [name]});
}

/** `local`, or the name of the project. */
const nameHere = (choice: CloudName) => (choice.kind === 'local' ? 'local' : cloudName(choice));
