import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import {openFirestoreStore} from '../../shared/google/firestore-store.ts';
import type {Store} from '../../shared/ports.ts';
import {describeOnEmulator} from './emulators.ts';
import {keepsTheContract} from './store-contract.ts';
import type {Effort} from './store-handles.ts';

const HARD: Effort = {increments: 100, stories: 150};

describe('Store: SQLite in memory', () => {
  keepsTheContract(() => {
    const store = openSqliteStore(':memory:');
    return [store, store];
  }, HARD);
});

describe('Store: SQLite in a file', () => {
  const file = useFolder();
  keepsTheContract(
    () => {
      const store = openSqliteStore(file());
      return [store, store];
    },
    {...HARD, stories: 50},
  );
});

describe('Store: one SQLite file, two connections', () => {
  const file = useFolder();
  keepsTheContract(
    () => {
      const path = file();
      return [openSqliteStore(path), openSqliteStore(path)];
    },
    {...HARD, stories: 50},
  );
});

describeOnEmulator('firestore', 'Store: Firestore', host => {
  let databases = 0;
  keepsTheContract(
    () => {
      process.env.FIRESTORE_EMULATOR_HOST = host();
      databases++;
      const open = (): Store => openFirestoreStore({project: `contract-${databases}`, database: 'gleaner'});
      return [open(), open()];
    },
    {increments: 6, stories: Number(process.env.GLEANER_STORIES ?? 4)},
  );
  after(() => {
    delete process.env.FIRESTORE_EMULATOR_HOST;
  });
});

function useFolder(): () => string {
  let folder = '';
  let files = 0;
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'gleaner-store-'));
  });
  after(() => rmSync(folder, {recursive: true}));
  return () => join(folder, `store-${++files}.db`);
}
