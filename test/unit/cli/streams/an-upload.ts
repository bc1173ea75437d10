import assert from 'node:assert/strict';
import {createStreams} from '../../../../cli/streams/create-streams.ts';
import {type UploadOptions, uploadStreams} from '../../../../cli/streams/upload-streams.ts';
import {running} from '../../../../client/connection/connect.ts';
import type {LocalCloud} from '../../../../emulator/cloud.ts';
import {openObjects} from '../../../../shared/google/objects.ts';
import {Scratch} from '../../../support/machine/a-cloud.ts';
import {Folder} from '../../../support/machine/folder.ts';

let runs = 0;

/** Folder `streams`, and a run of its own for each test, in a local cloud. */
export class Upload {
  readonly folder = new Folder(afterEach);
  run = '';
  #cloud: LocalCloud | undefined;

  constructor() {
    const scratch = new Scratch(after);
    before(async () => {
      this.#cloud = await scratch.cloud();
    });
    beforeEach(() => {
      this.run = `run-${++runs}`;
    });
  }

  get cloud(): LocalCloud {
    return this.#cloud ?? assert.fail('The cloud has not started');
  }

  get port(): string {
    return new URL(this.cloud.url).port;
  }

  /** Uploads the folder. `change` replaces values of the connection. */
  start(options: UploadOptions = {}, change = {}) {
    const connection = {...running(this.cloud), ...change};
    const cloud = {connection, objects: this.objects(connection.bucket), dir: this.cloud.dir};
    return uploadStreams(cloud, this.folder.at('streams'), this.run, options);
  }

  objects(bucket = this.cloud.bucket) {
    const {project, url: endpoint, token} = this.cloud;
    return openObjects({project, bucket, endpoint, token});
  }

  /** Names and texts of the objects of the run. */
  async stored(): Promise<[string | undefined, string][]> {
    const found = await this.objects().list(`datasets/${this.run}/`);
    return Promise.all(
      found.map(async ({name}) => {
        const bytes = await this.objects().read(name, {max_bytes: 1 << 30});
        return [name.split('/').at(-1), Buffer.from(bytes ?? '').toString('utf8')];
      }),
    );
  }

  /** Fills the folder with streams and their checksums. */
  async streams(samples: number, num_streams: number): Promise<void> {
    const lines = Array.from({length: samples}, (_, index) => `{"text":"row ${index}"}`);
    const source = this.folder.put('in.jsonl', lines.join('\n'));
    await createStreams([source], {num_streams, output_dir: this.folder.at('streams')});
  }

  /** Fills the folder with one stream of several pieces. */
  large(megabytes: number): void {
    const line = `{"text":"${'x'.repeat(999_988)}"}\n`;
    this.folder.put('streams/stream_000.jsonl', line.repeat(megabytes));
  }
}
