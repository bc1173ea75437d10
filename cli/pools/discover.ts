import {withCloud} from '../../client/cloud/cloud.ts';
import {aliveIn, readFleet} from '../../client/cloud/fleet.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import type {Column} from '../../client/text/format.ts';
import {print, table} from '../../client/text/output.ts';
import {type HostView, viewHosts} from '../../client/views/hosts.ts';

const COLUMNS: Column<HostView & {worker: string}>[] = [
  {title: 'Host', cell: ({worker, host}) => `${worker}/${host}`},
  {title: 'Name', cell: ({isKnown, hostname}) => (isKnown ? hostname || '-' : 'no hello yet')},
  {title: 'Address', cell: ({address}) => address || '-'},
  {title: 'Phase', cell: ({phase}) => phase},
];

/** Prints the hosts of the running workers. A host is known once it has said hello. */
export async function discover(target: string, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const workers = aliveIn(await readFleet(cloud), target);
    const all = workers.flatMap(worker => {
      const {name, pool} = worker;
      return viewHosts(worker).map(host => ({worker: name, pool, ...host}));
    });
    const none = 'no TPU is running: TPUs are created when there is work';
    const known = all.filter(({isKnown}) => isKnown).map(({isKnown: _, ...host}) => host);
    print<'discover'>(options.json, known, workers.length > 0 ? table(COLUMNS, all) : [none]);
  });
}
