/** Events of the timeline as a person may have edited them. */
import {eventRecords} from '../../shared/control-plane/documents/documents.ts';
import type {Stored} from '../../shared/ports/ports.ts';
import type {Entry} from '../json/tpus.ts';
import {complain} from '../text/output.ts';

export type {Entry};

/** An invalid document is named by `note` and left out. */
export function entriesOf(stored: Stored[], note = complain): Entry[] {
  const valid: {id: string; data: ReturnType<typeof eventRecords.parse>}[] = [];
  for (const {id, path, data} of stored) {
    const [parsed] = eventRecords.parseAll([{path, id, data}], ({message}) => note(message));
    if (parsed) valid.push({id, data: parsed});
  }
  return valid.map(({id, data: {at, kind, text, ...others}}) => ({
    ...{id, at, kind, text},
    run: textOf(others.run),
    stream: textOf(others.stream),
    worker: textOf(others.worker),
    job: textOf(others.job),
  }));
}

/** Fields that the schema of an event leaves open may have any value. */
function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}
