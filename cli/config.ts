import {poolRecords} from '../shared/control-plane/documents/documents.ts';
import {findCloud, requireCredentials, storeOf, type Where} from './cloud/connect.ts';
import type {Connection} from './cloud/connection.ts';
import {table} from './terminal/format.ts';
import {print, say} from './terminal/output.ts';

type Setting = {name: string; value: string | number | boolean | null; origin: string};

/** Prints the settings that commands use, and with `showOrigin` where each comes from. */
export async function showConfig(options: Where & {showOrigin?: boolean; json?: boolean}): Promise<void> {
  const connection = await findCloud(options);
  try {
    const settings = [...settingsOf(connection), ...(await poolSettings(connection))];
    const titles = ['NAME', 'VALUE', ...(options.showOrigin ? ['ORIGIN'] : [])];
    const rows = settings.map(({name, value, origin}) =>
      [name, value === null ? 'not set' : String(value), origin].slice(0, titles.length),
    );
    const shown = options.showOrigin ? settings : settings.map(({name, value}) => ({name, value}));
    print(
      options.json,
      {settings: shown},
      table(
        titles.map(title => ({title})),
        rows,
      ),
    );
  } finally {
    await connection.close();
  }
}

function settingsOf(connection: Connection): Setting[] {
  const {origin, origins} = connection;
  const values = {
    cloud: connection.is_google ? 'Google Cloud' : (connection.storage_endpoint ?? null),
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
