import {withCloud} from './cloud/cloud.ts';
import type {CloudOptions} from './cloud/connect.ts';
import {aliveIn, readFleet} from './cloud/fleet.ts';
import {table} from './terminal/format.ts';
import {print} from './terminal/output.ts';

const COLUMNS = [{title: 'HOST'}, {title: 'NAME'}, {title: 'ADDRESS'}, {title: 'PHASE'}];

/** Prints the hosts of the running workers. A host is known once it has said hello. */
export async function discover(target: string, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const workers = aliveIn(await readFleet(cloud), target);
    const hosts = workers.flatMap(({name, pool, phase, hosts}) =>
      Object.entries(hosts).map(([host, at]) => ({worker: name, host: Number(host), ...at, pool, phase})),
    );
    const silent = workers.filter(({hosts}) => Object.keys(hosts).length === 0);
    const lines = table(COLUMNS, [
      ...hosts.map(({worker, host, hostname, address, phase}) => [
        `${worker}/${host}`,
        hostname || '-',
        address || '-',
        phase,
      ]),
      ...silent.map(({name, phase}) => [name, 'no host has said hello yet', '-', phase]),
    ]);
    const none = 'no TPU is running: TPUs are created when there is work';
    print<'discover'>(options.json, hosts, workers.length > 0 ? lines : [none]);
  });
}
