/** The contract of the Store in `ports/ports.ts`, as tests for every adapter. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {refusesInvalidInput, storesDocuments} from './store-documents.ts';
import {type Effort, type Handles, Stores} from './store-handles.ts';
import {ModelStore, runOn} from './store-model.ts';
import {answersQueries} from './store-queries.ts';
import {story} from './store-stories.ts';
import {commitsTransactions, isolatesTransactions} from './store-transactions.ts';

export function keepsTheContract(open: () => Handles, effort: Effort): void {
  const stores = new Stores();

  beforeEach(() => {
    [stores.here, stores.there] = open();
  });

  afterEach(async () => {
    await stores.here.close();
    await stores.there.close();
  });

  describe('documents', () => {
    storesDocuments(stores);
    refusesInvalidInput(stores);
  });
  describe('transactions', () => {
    commitsTransactions(stores);
    isolatesTransactions(stores, effort);
  });
  answersQueries(stores);

  it('the Store matches a Map model on random operations', async () => {
    await fc.assert(
      fc.asyncProperty(story, async steps => {
        const [store, other] = open();
        try {
          const model = new ModelStore();
          for (const [n, step] of steps.entries())
            assert.deepEqual(await runOn(n % 2 ? store : other, step), model.run(step));
        } finally {
          await store.close();
          await other.close();
        }
      }),
      {numRuns: effort.stories},
    );
  });
}
