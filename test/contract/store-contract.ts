/** The contract of the Store in `ports/ports.ts`, as tests for every adapter. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import type {Document, Store} from '../../shared/ports/ports.ts';
import {storesDocuments} from './store-documents.ts';
import type {Effort, Handles, Stores} from './store-handles.ts';
import {ModelStore, runOn} from './store-model.ts';
import {answersQueries} from './store-queries.ts';
import {story} from './store-stories.ts';
import {commitsTransactions} from './store-transactions.ts';

export function keepsTheContract(open: () => Handles, effort: Effort): void {
  let here: Store;
  let there: Store;

  beforeEach(() => {
    [here, there] = open();
  });

  afterEach(async () => {
    await here.close();
    await there.close();
  });

  async function put(documents: Record<string, Document>): Promise<void> {
    await here.transaction(async tx => {
      for (const [path, data] of Object.entries(documents)) tx.set(path, data);
    });
  }

  const stores = (): Stores => ({here, there, put});
  describe('documents', () => storesDocuments(stores));
  describe('transactions', () => commitsTransactions(stores, effort));
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
