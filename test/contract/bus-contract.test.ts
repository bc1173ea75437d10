import assert from 'node:assert/strict';
import {DatabaseSync} from 'node:sqlite';
import {EmbeddedBus} from '../../emulator/delivery/embedded-bus.ts';
import {RELEASE} from '../../shared/contracts/settings/config.ts';
import {openBus} from '../../shared/google/bus.ts';
import type {Bus, Document} from '../../shared/ports/ports.ts';
import {Scratch} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';

/** `release`: the attribute of the message. */
type Arrived = {id: string; topic: string; message: Document; release?: string | undefined};
type Subject = {bus: Bus; arrived: () => Arrived[]; close: () => Promise<void>};

async function embedded(): Promise<Subject> {
  const arrived: Arrived[] = [];
  const bus = new EmbeddedBus({
    database: new DatabaseSync(':memory:'),
    deliver: async ({id, topic, message}) => {
      arrived.push({id, topic, message});
    },
    now: Date.now,
    random: Math.random,
  });
  bus.start();
  return {bus, arrived: () => arrived, close: () => bus.stop()};
}

/** Google's client against the local cloud, and the events that reached its functions. */
async function pubsub(): Promise<Subject> {
  const scratch = new Scratch();
  const {cloud, seen} = await scratch.cloudWithFunctions();
  const before = process.env.PUBSUB_EMULATOR_HOST;
  process.env.PUBSUB_EMULATOR_HOST = cloud.pubsub_endpoint;
  return {
    bus: openBus({project: cloud.project, token: cloud.token}),
    arrived: () =>
      seen().map(event => ({
        id: event.id,
        topic: event.function.replace('on-', ''),
        message: JSON.parse(event.text),
        release: event.data.message?.attributes?.release,
      })),
    close: async () => {
      if (before === undefined) delete process.env.PUBSUB_EMULATOR_HOST;
      else process.env.PUBSUB_EMULATOR_HOST = before;
      await scratch.end();
    },
  };
}

for (const [name, open] of [
  ['EmbeddedBus', embedded],
  ['Pub/Sub on the local cloud', pubsub],
] as const) {
  describe(`Bus: ${name}`, () => {
    let subject: Subject;
    before(async () => {
      subject = await open();
    });
    after(() => subject.close());

    it('a published message arrives under the id that publish returned', async () => {
      const message = {action: 'pause', run: 'my-run', nested: {list: [1, 'två', null, true]}};
      const id = await subject.bus.publish('control', message);
      const arrived = await until('it arrived', () => subject.arrived().find(event => event.id === id));
      const {release, ...rest} = arrived;
      assert.deepEqual(rest, {id, topic: 'control', message});
      if (name !== 'EmbeddedBus') assert.equal(release, RELEASE, 'it names the release that published it');
    });

    it('every publish has an id of its own, also for equal messages', async () => {
      const ids = await Promise.all([1, 2, 3, 4, 5].map(() => subject.bus.publish('tpu', {same: 'words'})));
      assert.equal(new Set(ids).size, 5);
      await until('all arrived', () => ids.every(id => subject.arrived().some(event => event.id === id)));
    });
  });
}
