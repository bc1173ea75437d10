/** Handles on a store under test, and the size of its tests. */
import type {Document, Store} from '../../shared/ports/ports.ts';

/** Two handles on one empty store, perhaps the same handle. */
export type Handles = [Store, Store];

/** Size of the tests: Google's emulator gives up a contended lock only after two seconds. */
export type Effort = {increments: number; stories: number};

/** Both handles of the present test. */
export class Stores {
  here!: Store;
  there!: Store;

  /** Sets documents in one transaction. */
  async put(documents: Record<string, Document>): Promise<void> {
    await this.here.transaction(async tx => {
      for (const [path, data] of Object.entries(documents)) tx.set(path, data);
    });
  }
}
