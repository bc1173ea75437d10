/** State of a smoke test in a file, so that a test that stopped goes on where it was. */
import {existsSync, readFileSync, renameSync, writeFileSync} from 'node:fs';
import {z} from 'zod';
import {smokeResult} from '../../client/json/clouds.ts';
import {CliError} from '../../client/text/errors.ts';
import {Rejected} from '../../shared/contracts/errors.ts';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';

const state = z.strictObject({
  project: z.string(),
  deployment: z.string(),
  /** Part of the names of the runs. */
  id: z.string(),
  attempts: z.number().int(),
  /** Runs of the steps, by their purpose. */
  runs: z.record(z.string(), z.string()),
  jobs: z.array(z.string()),
  pool: z.string().optional(),
  zone: z.string().optional(),
  /** Records of the next run that loses its TPU, once a run was completed before. */
  lost_records: z.number().int().optional(),
  steps: z.record(z.string(), smokeResult),
});

export type SmokeState = z.infer<typeof state>;
export type Result = z.infer<typeof smokeResult>;

/** Reads the file; a new state where there is none. Throws `CliError` for the state of another deployment. */
export function readState(
  file: string,
  {project, deployment}: Pick<SmokeState, 'project' | 'deployment'>,
): SmokeState {
  if (!existsSync(file)) {
    const id = Date.now().toString(36);
    return {project, deployment, id, attempts: 0, runs: {}, jobs: [], steps: {}};
  }
  try {
    const stateInFile = parseJson(state, readFileSync(file, 'utf8'), file);
    if (stateInFile.project === project && stateInFile.deployment === deployment) return stateInFile;
    throw new CliError(
      `${file} belongs to ${stateInFile.deployment} in ${stateInFile.project}: name another --state-file`,
    );
  } catch (error) {
    throw error instanceof Rejected
      ? new CliError(`${error.message}: delete the file`, {cause: error})
      : error;
  }
}

/** Replaces the file at once. Throws `CliError` for a folder that refuses it. */
export function writeState(file: string, kept: SmokeState): void {
  try {
    writeFileSync(`${file}.new`, `${JSON.stringify(kept, null, 2)}\n`);
    renameSync(`${file}.new`, file);
  } catch (error) {
    throw new CliError(`Failed to keep the state: ${(error as Error).message}: name another --state-file`, {
      cause: error,
    });
  }
}
