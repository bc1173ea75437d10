/** Names of the fields of a document of a job, people's and ours. */
import {JOB_FIELDS} from '../../shared/control-plane/documents/job-schema.ts';

export function jobDocumentFields(): string[] {
  return [...JOB_FIELDS];
}
