import {type CloudOptions, findCloud, requireCredentials, storeOf} from '../../client/connection/connect.ts';
import type {Connection} from '../../client/connection/connection.ts';
import type {Answers} from '../../client/json/index.ts';
import type {Column} from '../../client/text/format.ts';
import {print, say, table} from '../../client/text/output.ts';
import {poolRecords} from '../../shared/control-plane/documents/documents.ts';

type Setting = Answers['config show']['settings'][number] & {origin: string};

const COLUMNS: Column<Setting>[] = [
  {title: 'Name', cell: ({name}) => name},
  {title: 'Value', cell: ({value}) => (value === null ? 'not set' : String(value))},
  {title: 'Origin', cell: ({origin}) => origin},
];

/** Prints the settings that commands use, and with `show_origin` where each comes from. */
export async function showConfig(options: CloudOptions & {show_origin?: boolean}): Promise<void> {
  const connection = await findCloud(options);
  try {
    const settings = [...settingsOf(connection), ...(await poolSettings(connection))];
    const columns = COLUMNS.slice(0, options.show_origin ? 3 : 2);
    const shown = options.show_origin ? settings : settings.map(({name, value}) => ({name, value}));
    print<'config show'>(options.json, {settings: shown}, table(columns, settings));
  } finally {
    await connection.close();
  }
}

function settingsOf(connection: Connection): Setting[] {
  const {origin, origins} = connection;
  const values = {
    cloud: connection.name,
    ...(connection.is_google ? {} : {address: connection.storage_endpoint ?? null}),
    project: connection.project,
    deployment: connection.deployment,
    bucket: connection.bucket,
    store: connection.store,
    jobs: connection.jobs,
    default_model: connection.default_model ?? null,
  };
  return Object.entries(values).map(([name, value]) => ({name, value, origin: origins[name] ?? origin}));
}

/** Settings of the pools that have a document. A pool without one has the settings of the deployment. */
async function poolSettings(connection: Connection): Promise<Setting[]> {
  try {
    if (connection.is_google) await requireCredentials();
    const store = storeOf(connection);
    try {
      const pools = poolRecords.parseAll(await store.query('pools'), ({message}) => say(message));
      return pools.flatMap(({pool, ...settings}) => {
        const {accelerator, runtime_version, spot, provisioning, workers_per_zone, budget_usd} = settings;
        const values = {accelerator, runtime_version, spot, provisioning, workers_per_zone, budget_usd};
        return Object.entries({...values, zones: settings.zones.join(',')}).map(([name, value]) => ({
          ...{name: `pools.${pool}.${name}`, value},
          origin: `document pools/${pool}`,
        }));
      });
    } finally {
      await store.close();
    }
  } catch (error) {
    say(`The settings of pools cannot be read: ${(error as Error).message}`);
    return [];
  }
}
