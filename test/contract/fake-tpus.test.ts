import type {Tpus} from '../../shared/ports/ports.ts';
import {callAtOnce} from '../world/call.ts';
import {Clockwork} from '../world/clock.ts';
import {calm} from '../world/tpu-faults.ts';
import {FakeTpus} from '../world/tpus.ts';
import {itKeepsTheContract, type TpuCloud} from './tpus-contract.ts';

const FLAGS = {
  unreachable: 'unreachable',
  stockout: 'soldOut',
  quota: 'overQuota',
  rate: 'overRate',
} as const;

describe('Tpus: in memory', () => {
  let clockwork: Clockwork;
  let fake: FakeTpus;
  let tpus: Tpus;
  beforeEach(() => {
    clockwork = new Clockwork(Date.now());
    fake = new FakeTpus(calm(clockwork));
    tpus = fake.through(callAtOnce);
  });

  const listUntil: TpuCloud['listUntil'] = async isReached => {
    for (let settled = 0; settled < 9; settled++) {
      const {tpus: found} = await tpus.list();
      if (isReached(found)) return found;
      clockwork.runDue();
    }
    throw new Error('The list never is as wanted');
  };

  itKeepsTheContract({
    client: () => tpus,
    listUntil,
    fault: async (kind, zone) => {
      fake.zone(zone)[FLAGS[kind]] = true;
    },
  });
});
