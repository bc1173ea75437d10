import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import {Folder} from '../support/machine/folder.ts';
import {callAtOnce} from '../world/call.ts';
import {checkedStore} from '../world/checked-store.ts';
import {Clockwork} from '../world/clock.ts';
import {SimStore} from '../world/store.ts';
import {keepsTheContract} from './store-contract.ts';
import type {Effort} from './store-handles.ts';

const HARD: Effort = {increments: 100, stories: 150};

describe('Store: memory of the tests', () => {
  keepsTheContract(
    () => {
      const store = checkedStore(new SimStore(new Clockwork(0)).through(callAtOnce));
      return [store, store];
    },
    // Each round of attempts commits one of them, as in Firestore a transaction has five attempts.
    {...HARD, increments: 5},
  );
});

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

function useFolder(): () => string {
  const folder = new Folder(after);
  let files = 0;
  return () => folder.at(`store-${++files}.db`);
}
