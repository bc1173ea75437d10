/** Names of the fields of a document of a job, people's and ours. */
import {jobDocument} from '../../../shared/domain/records/job.ts';

export function jobDocumentFields(): string[] {
  return Object.keys(jobDocument.shape);
}
