/** A training that is killed again and again ends with the losses and weights of the undisturbed one, to the bit. */
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {setTimeout as sleep} from 'node:timers/promises';
import type {Job} from '../../shared/domain/records/job.ts';
import {seeded} from '../world/clock.ts';
import {JobHome} from './job-home.ts';

const CODE = readFileSync(new URL('./training.py', import.meta.url), 'utf8');

/** Of a test of the tier long. */
const KILLS = Number(process.env.TRAINING_KILLS ?? 20);

/** Settings of the package index of this machine. */
const INDEX = Object.entries(process.env)
  .flatMap(([name, value]) => (/^(UV_|SSL_CERT_)/.test(name) ? `export ${name}='${value}'\n` : []))
  .join('');

type Shape = {
  saves: 'numpy' | 'optax' | 'orbax';
  where: 'folder' | 'bucket';
  slices: number;
  hosts: number;
  kills: number;
};

/** Fields of the job. Its setup installs what the training imports beside JAX. */
function fieldsOf({saves, where, slices, hosts}: Shape, steps: number, pause_s: number) {
  const values = {SAVES: saves, WHERE: where, STEPS: steps, PAUSE_S: pause_s};
  const set = `import os\nos.environ.update(${JSON.stringify(values).replace(/:(\d[\d.]*)/g, ':"$1"')})\n`;
  const needs = {
    numpy: '',
    optax: 'optax==0.2.6',
    orbax: 'optax==0.2.6 orbax-checkpoint==0.11.28 gcsfs==2026.10.0',
  }[saves];
  return {
    ...{code: set + CODE, timeout: 3600, max_retries: 0, slices, checkpoint: {every_s: 1}},
    pool: hosts === 1 ? 'tpu' : 'big',
    ...(needs ? {environment: {setup_script: `${INDEX}uv pip install ${needs}`}} : {}),
  };
}

/** Kills the attempt, or its machine, at a random moment after its next save; the odd ones inside of a save. */
async function kill(cloud: JobHome, id: string, number: number, random: () => number): Promise<void> {
  const {epoch} = await cloud.becomes(id, 'running');
  const host = (await cloud.job(id))?.lease?.host_count === 1 ? undefined : 0;
  await cloud.prints(id, 'saved step', epoch, host);
  await sleep(1000 + random() * (host === undefined ? 4_000 : 12_000));
  const job = await cloud.job(id);
  const worker = job?.lease?.worker;
  if (job?.status !== 'running' || !worker) return;
  const kind = ['preempt', 'restart', 'preempt-with-notice', 'cancel', 'vanish'][number % 5] ?? '';
  if (kind === 'cancel') {
    await cloud.succeeds('jobs', 'cancel', id);
    await cloud.ends(id);
    await cloud.succeeds('jobs', 'retry', id);
    return;
  }
  const before = job.attempts.length;
  const isOfHost = host !== undefined && kind !== 'preempt' && kind !== 'vanish';
  await cloud.home.fault(kind, isOfHost ? `${worker}-w-${number % 2}` : worker).catch(requireGone);
  await cloud.home.until(
    `the end of attempt ${epoch}`,
    () => cloud.job(id),
    found => (found?.attempts.length ?? 0) > before,
    200,
  );
}

/** The fault before may have taken the TPU. */
function requireGone(error: Error): void {
  assert.match(error.message, /is (PREEMPTED|CREATING)|Unknown TPU/);
}

function resultOf(job: Job): string {
  assert.deepEqual([job.status, job.error], ['completed', null]);
  return String(job.result);
}

describe('A training through many kills', () => {
  let cloud: JobHome;
  beforeEach(async () => {
    cloud = await JobHome.start(1);
  });
  afterEach(() => cloud?.remove());

  const shapes: Shape[] = [
    {saves: 'numpy', where: 'folder', slices: 1, hosts: 1, kills: 2},
    ...(['numpy', 'optax', 'orbax'] as const).flatMap(saves =>
      [
        {slices: 1, hosts: 1},
        {slices: 1, hosts: 2},
        {slices: 2, hosts: 2},
      ].map(size => ({
        saves,
        where: saves === 'orbax' ? ('bucket' as const) : ('folder' as const),
        ...size,
        kills: KILLS,
      })),
    ),
    {saves: 'orbax', where: 'folder', slices: 1, hosts: 1, kills: KILLS},
  ];
  for (const shape of shapes) {
    const {saves, where, slices, hosts, kills} = shape;
    const tier = kills > 2 ? ' @long' : '';
    it(`ends as the undisturbed one: ${saves} in the ${where}, ${slices} slices of ${hosts} hosts, ${kills} kills${tier}`, async () => {
      if (hosts > 1) {
        const create = ['pool', 'create', 'big', '--accelerator', 'v4-16', '--zones', 'us-central1-a'];
        await cloud.succeeds(...create, '--workers-per-zone', String(slices));
      }
      const steps = kills * (kills > 2 ? 14 : 24);
      const random = seeded(kills + hosts + slices);
      const wanted = resultOf(await cloud.ends(await cloud.submit(fieldsOf(shape, steps, 0))));
      const id = await cloud.submit(fieldsOf(shape, steps, hosts * slices === 1 ? 0.5 : 1));
      for (let number = 0; number < kills; number++) await kill(cloud, id, number, random);
      const job = await cloud.ends(id);
      assert.equal(resultOf(job), wanted);
      const begins = await Promise.all(
        job.attempts.map(async ({epoch}) => {
          const output = await cloud.output(id, epoch, hosts * slices === 1 ? undefined : 0);
          return Number(/begins at step (\d+)/.exec(output)?.[1] ?? Number.NaN);
        }),
      );
      const began = job.attempts.flatMap(({restored_at}, number) => {
        const step = begins[number] ?? Number.NaN;
        return Number.isFinite(step) ? [{step, isRestored: restored_at !== null || where === 'bucket'}] : [];
      });
      const said = `attempts began at ${begins}`;
      assert.ok(
        began.slice(1).some(({step}) => step > 0),
        said,
      );
      if (where === 'folder')
        for (const {step, isRestored} of began) assert.equal(step > 0, isRestored, said);
      console.log(`        ${job.attempts.length} attempts began at steps ${begins.join(', ')}`);
    });
  }
});
