/** More commands at once than a tick reads in one query. */
import assert from 'node:assert/strict';
import {execHostRecords, execRecords} from '../../../shared/control-plane/documents/documents.ts';
import {execTimes} from '../../../shared/domain/records/exec.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {World} from '../../world/world.ts';

describe('a tick with many commands', () => {
  it('ends each overdue command, although earlier ones in the order of ids go on', async () => {
    const world = new World(ONE_SLOT);
    const now = world.deps.now();
    const ids = Array.from({length: 30}, (_, number) => `e${String(number).padStart(2, '0')}`);
    for (const exec of ids) {
      const isLast = exec === ids.at(-1);
      const times = execTimes(600, isLast ? now - 3_600_000 : now, 30);
      await world.store.transaction(async tx => {
        execRecords.set(tx, {
          ...{exec, target: A0, argv: ['ls'], shell: false, timeout_s: 600, requested_by: null},
          ...{message_id: exec, status: 'running', reason: null, is_assigned: isLast},
          ...{hosts: 1, hosts_done: 0, hosts_failed: 0, completed_at: null, ...times},
          output_path: `gs://bucket/execs/${exec}/`,
        });
        execHostRecords.set(tx, exec, {
          ...{worker: A0, incarnation: 1, host: 0, hostname: null, status: 'waiting', exit_code: null},
          ...{error: null, started_at: null, ended_at: null, expire_at: times.expire_at},
          output_path: `gs://bucket/execs/${exec}/${A0}/0/`,
        });
      });
    }
    await world.tick();
    const last = await world.store.get(`execs/${ids.at(-1)}`);
    assert.equal(last?.status, 'done');
  });
});
