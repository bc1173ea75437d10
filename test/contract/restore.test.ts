import assert from 'node:assert/strict';
import {readdirSync} from 'node:fs';
import {runRecords, streamRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {openFirestoreStore} from '../../shared/google/firestore-store.ts';
import {Folder} from '../support/machine/folder.ts';
import {aLeasedStream, aRun, aWorker} from '../world/builders.ts';
import {describeOnEmulator, startAnother} from './emulators.ts';

const PROJECT = 'restored';
const DATABASE = `projects/${PROJECT}/databases/(default)`;

describeOnEmulator('firestore', 'A backup of the database @long', host => {
  const folder = new Folder(after);
  after(() => delete process.env.FIRESTORE_EMULATOR_HOST);

  it('gives every document back in another database', async () => {
    const [run, stream, worker] = [aRun(), aLeasedStream(), aWorker()];
    process.env.FIRESTORE_EMULATOR_HOST = host();
    const store = openFirestoreStore({project: PROJECT});
    await store.transaction(async transaction => {
      runRecords.set(transaction, run);
      streamRecords.set(transaction, stream);
      workerRecords.set(transaction, worker);
    });
    const readAll = (from: typeof store) =>
      Promise.all([
        runRecords.get(from, run.run),
        streamRecords.get(from, stream.run, stream.stream),
        workerRecords.get(from, worker.name),
      ]);
    const stored = await readAll(store);
    await store.close();
    await backUp();
    const restored = await startAnother('firestore', `--seed_from_export=${backupIn(folder)}`);
    try {
      process.env.FIRESTORE_EMULATOR_HOST = restored.host;
      const other = openFirestoreStore({project: PROJECT});
      assert.ok(stored.every(document => document !== undefined));
      assert.deepEqual(await readAll(other), stored);
      await other.close();
    } finally {
      await restored.stop();
    }
  });

  async function backUp(): Promise<void> {
    const answer = await fetch(`http://${host()}/emulator/v1/projects/${PROJECT}:export`, {
      method: 'POST',
      headers: {'content-type': 'application/json'},
      body: JSON.stringify({database: DATABASE, export_directory: folder.path, export_name: 'backup'}),
    });
    assert.equal(answer.status, 200, await answer.text());
  }
});

function backupIn(folder: Folder): string {
  const names = readdirSync(folder.path, {recursive: true, encoding: 'utf8'});
  const found = names.find(name => name.endsWith('.overall_export_metadata'));
  return folder.at(found ?? assert.fail(names.join()));
}
