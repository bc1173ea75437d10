/** Events of the timeline as a person may have edited them. */
import {eventRecords} from '../../shared/control-plane/documents/documents.ts';
import type {Stored} from '../../shared/ports/ports.ts';
import {rowOf} from '../json/fields.ts';
import {type Entry, event} from '../json/tpus.ts';
import {complain} from '../text/output.ts';

export type {Entry};

/** An invalid document is named by `note` and left out. */
export function entriesOf(stored: Stored[], note = complain): Entry[] {
  return stored.flatMap(({id, path, data}) => {
    const found = eventRecords.parseAll([{path, id, data}], ({message}) => note(message));
    return found.map(each => rowOf(event, {...each, id}));
  });
}
