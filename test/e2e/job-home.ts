/** Jobs on a local cloud, as a person submits and reads them. */
import assert from 'node:assert/strict';
import {mkdirSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {paths} from '../../shared/domain/names.ts';
import type {Job} from '../../shared/domain/records/job.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {gleaner} from '../support/machine/command.ts';
import {TestHome} from '../support/machine/home.ts';
import {until} from '../support/machine/until.ts';

/** Variables of a cloud whose workers run jobs: without root there is no other user. */
const ISOLATION: Record<string, string> = process.getuid?.() === 0 ? {} : {GLEANER_JOB_ISOLATION: 'none'};

export class JobHome {
  readonly home: TestHome;
  #files = 0;

  private constructor(home: TestHome) {
    this.home = home;
  }

  static async start(
    workers: number,
    flags: string[] = [],
    secrets: Record<string, string> = {},
    env: Record<string, string> = {},
  ): Promise<JobHome> {
    return new JobHome(await TestHome.start(workers, {...ISOLATION, ...env}, flags, secrets));
  }

  remove(): Promise<void> {
    return this.home.remove();
  }

  /** Runs `gleaner ARGS` on the cloud. */
  gleaner(...args: string[]): ReturnType<typeof gleaner> {
    const end = args.indexOf('--');
    const at = end < 0 ? args.length : end;
    return gleaner([...args.slice(0, at), '--dir', this.home.dir, ...args.slice(at)]);
  }

  /** Runs `gleaner ARGS`, and returns its output. Fails where the command fails. */
  async succeeds(...args: string[]): Promise<string> {
    const {code, stdout, stderr} = await this.gleaner(...args);
    assert.equal(code, 0, `gleaner ${args.join(' ')}: ${stdout}${stderr}`);
    return stdout;
  }

  /** Submits a job by the command, with further flags. Returns its id. */
  async submit(fields: Document, ...flags: string[]): Promise<string> {
    const file = join(this.home.dir, 'submitted', `${++this.#files}.json`);
    mkdirSync(join(this.home.dir, 'submitted'), {recursive: true});
    writeFileSync(file, JSON.stringify(fields));
    const {id} = JSON.parse(await this.succeeds('jobs', 'submit', file, '--json', ...flags));
    return String(id);
  }

  /** Submits a job by a message. */
  async send(job: string, fields: Document): Promise<void> {
    await this.home.publish({action: 'submit', job, ...fields});
  }

  /** Creates the document of a job, as a client of Firestore does. */
  async create(id: string, fields: Document): Promise<void> {
    await this.home.read(store =>
      store.transaction(async tx => tx.create(paths.job('jobs', id), {...fields, status: 'pending'})),
    );
  }

  async job(id: string): Promise<Job | undefined> {
    return (await this.home.read(store => store.get(paths.job('jobs', id)))) as unknown as Job | undefined;
  }

  async jobs(): Promise<Job[]> {
    const stored = await this.home.read(store => store.query('jobs'));
    return stored.map(({data}) => data as unknown as Job);
  }

  async workers(): Promise<Worker[]> {
    const stored = await this.home.read(store => store.query('workers'));
    return stored.map(({data}) => data as unknown as Worker);
  }

  /** Waits until the job has a status. */
  becomes(id: string, ...statuses: Job['status'][]): Promise<Job> {
    const has = (job: Job | undefined) => job !== undefined && statuses.includes(job.status);
    return until(`${id} ${statuses}`, () => this.job(id), has) as Promise<Job>;
  }

  ends(id: string): Promise<Job> {
    return this.becomes(id, 'completed', 'failed', 'cancelled');
  }

  /** Text of the objects of a folder, in the order of their names. */
  async text(folder: string): Promise<string> {
    const names = (await this.home.objects.list(folder)).map(({name}) => name).sort();
    const parts = await Promise.all(names.map(name => this.home.objects.read(name, {max_bytes: 1e8})));
    return Buffer.concat(parts.map(part => Buffer.from(part ?? ''))).toString();
  }

  /** Output of an attempt of a job, of one host where the job has several. */
  output(id: string, epoch = 1, host?: number): Promise<string> {
    const ofHost = host === undefined ? '' : `host_${host}/`;
    return this.text(`jobs/${id}/epoch_${epoch}/${ofHost}output/`);
  }

  /** Waits until the output of an attempt has a text. */
  async prints(id: string, text: string, epoch = 1, host?: number): Promise<string> {
    return until(
      `"${text}" of ${id}`,
      () => this.output(id, epoch, host),
      output => output.includes(text),
    );
  }
}
