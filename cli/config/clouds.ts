/** `gleaner cloud list`, `use` and `forget`: the clouds of this user, and which folder uses which. */
import {currentCloud, useCloud} from '../../client/connection/choose.ts';
import {cloudName, cloudText, homeText, parseCloudName} from '../../client/connection/cloud-name.ts';
import {isRunningIn} from '../../client/connection/connect.ts';
import {forget, readDecisions} from '../../client/connection/decisions.ts';
import type {Answers} from '../../client/json/index.ts';
import {CliError} from '../../client/text/errors.ts';
import {type Column, listText} from '../../client/text/format.ts';
import {print, say, table} from '../../client/text/output.ts';
import {ownFolders} from '../../emulator/state/own-folder.ts';

type JsonOption = {json?: boolean | undefined};
type Row = Answers['cloud list']['clouds'][number];

const COLUMNS: Column<Row>[] = [
  {title: '', cell: ({current}) => (current ? '*' : '')},
  {title: 'Cloud', cell: ({name}) => homeText(name)},
  {title: 'State', cell: ({state}) => state},
  {title: 'Folders', cell: ({folders}) => listText(folders.map(homeText)) || '-'},
];

export async function list({json}: JsonOption): Promise<void> {
  const decisions = readDecisions();
  const current = await currentCloud().catch((error: Error) => {
    say(error.message);
    return undefined;
  });
  const names = [
    ...ownFolders(),
    ...decisions.map(({cloud}) => cloud),
    ...(current ? [cloudName(current)] : []),
  ];
  const clouds = await Promise.all(
    [...new Set(names)].sort().map(
      async (name): Promise<Row> => ({
        name,
        state: await stateOf(name),
        folders: decisions.flatMap(({folder, cloud}) => (cloud === name ? [folder] : [])),
        current: current !== undefined && cloudName(current) === name,
      }),
    ),
  );
  const none = 'No cloud is known: `gleaner local up` starts one on this machine';
  print<'cloud list'>(json, {clouds}, clouds.length > 0 ? table(COLUMNS, clouds) : [none]);
}

async function stateOf(name: string): Promise<Row['state']> {
  const cloud = parseCloudName(name);
  if (cloud.kind === 'project') return 'Google Cloud';
  return (await isRunningIn(cloud.dir)) ? 'running' : 'stopped';
}

export async function use(name: string, {json}: JsonOption): Promise<void> {
  const cloud = useCloud(name);
  const folder = process.cwd();
  print<'cloud use'>(json, {name: cloudName(cloud), folder}, [
    `Commands in ${homeText(folder)} use ${cloudText(cloud)}`,
  ]);
}

export function forgetCloud(name: string, {json}: JsonOption): void {
  const cloud = parseCloudName(name);
  const folders = forget(cloudName(cloud));
  if (folders.length === 0)
    throw new CliError(`No folder uses ${cloudText(cloud)}: \`gleaner cloud list\` lists those in use`);
  print<'cloud forget'>(json, {name: cloudName(cloud), folders}, [
    `Commands in ${listText(folders.map(homeText))} ask again before they use ${cloudText(cloud)}`,
  ]);
}
