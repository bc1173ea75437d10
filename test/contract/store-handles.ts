/** Handles on a store under test, and the size of its tests. */
import type {Document, Store} from '../../shared/ports/ports.ts';

/** Two handles on one empty store, perhaps the same handle. */
export type Handles = [Store, Store];

/** Size of the tests: Google's emulator gives up a contended lock only after two seconds. */
export type Effort = {increments: number; stories: number};

/** Both handles of the present test, and a transaction that sets documents. */
export type Stores = {here: Store; there: Store; put: (documents: Record<string, Document>) => Promise<void>};
