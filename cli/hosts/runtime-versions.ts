/** Runtime versions that Cloud TPU offers in a zone. */
import {clientOptionsFor} from '../../shared/google/endpoint.ts';
import type {Connection} from '../cloud/connection.ts';
import {CliError} from '../terminal/errors.ts';

const CALL = {timeout: 20_000};

export type Offer = {zone: string; versions: string[]};

export async function availableIn(
  zones: readonly string[],
  {project, storage_endpoint: endpoint, token}: Pick<Connection, 'project' | 'storage_endpoint' | 'token'>,
): Promise<Offer[]> {
  const {v2} = (await import('@google-cloud/tpu')).default;
  // A local cloud serves every API at one address.
  const client = new v2.TpuClient({projectId: project, ...clientOptionsFor(endpoint, token)});
  try {
    return await Promise.all(
      zones.map(async zone => {
        const parent = `projects/${project}/locations/${zone}`;
        const [found] = await client.listRuntimeVersions({parent}, CALL);
        return {zone, versions: found.flatMap(({version}) => version ?? []).sort()};
      }),
    );
  } catch (error) {
    throw new CliError(`Failed to list the runtime versions: ${(error as Error).message}`, {cause: error});
  } finally {
    await client.close();
  }
}
