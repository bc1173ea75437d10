/** A process that shares a store file with others: `sqlite-worker.ts MODE FILE`. Writes its progress to stdout. */
import {DatabaseSync} from 'node:sqlite';
import {setTimeout as sleep} from 'node:timers/promises';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';

const [mode, file = ''] = process.argv.slice(2);

async function increment(times: number): Promise<void> {
  const store = openSqliteStore(file);
  for (let n = 0; n < times; n++)
    await store.transaction(async tx => {
      const counter = await tx.get('counters/c');
      tx.set('counters/c', {n: Number(counter?.n ?? 0) + 1});
    });
  await store.close();
}

/** Writes pairs that must stay equal, in slow commits, and prints each number after its commit. */
async function pairs(): Promise<void> {
  const store = openSqliteStore(file);
  const padding = 'x'.repeat(200_000);
  for (;;) {
    const n = await store.transaction(async tx => {
      const next = Number((await tx.get('pairs/left'))?.n ?? 0) + 1;
      for (const side of ['left', 'right']) tx.set(`pairs/${side}`, {n: next, padding});
      return next;
    });
    process.stdout.write(`${n}\n`);
  }
}

/** Stops in the middle of a commit, with the file locked and half of the commit written. */
async function halfway(): Promise<void> {
  const database = new DatabaseSync(file);
  database.exec('pragma cache_size = 1; begin immediate');
  const insert = database.prepare("insert into documents (collection, id, data) values ('halves', ?, ?)");
  for (let n = 0; n < 500; n++) insert.run(String(n), JSON.stringify({padding: 'x'.repeat(5000)}));
  process.stdout.write('halfway\n');
  await sleep(60_000);
}

/** Writes until the disk is full. Prints the number of commits, the error, and the number of documents. */
async function fill(): Promise<void> {
  const store = openSqliteStore(file);
  let kept = 0;
  try {
    for (;;) {
      await store.transaction(async tx => tx.create(`pages/${kept}`, {text: 'x'.repeat(100_000)}));
      kept++;
    }
  } catch (error) {
    process.stdout.write(`${kept}\n${error}\n${await store.count('pages')}\n`);
  }
}

const modes: Record<string, () => Promise<void>> = {increment: () => increment(100), pairs, halfway, fill};
await modes[mode ?? '']?.();
