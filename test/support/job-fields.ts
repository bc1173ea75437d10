import type {z} from 'zod';
import {jobDocument} from '../../shared/control-plane/state/job-documents.ts';

/** Fields of the document of a job, those of people and those of the control plane. */
export function jobDocumentFields(): string[] {
  return Object.keys((jobDocument as unknown as z.ZodObject).shape);
}
