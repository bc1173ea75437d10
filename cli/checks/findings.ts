/** Findings of the checks before a command that costs money. */
import {CliError} from '../../client/text/errors.ts';
import {say} from '../../client/text/output.ts';

/** `problem`: the command cannot succeed. `unchecked`: the reason why this machine cannot tell. `note`: what the user may not expect. */
export type Finding = {problem: string} | {unchecked: string} | {note: string};

/** Says the notes, and what was not checked. */
export function sayNotes(findings: readonly Finding[]): void {
  for (const finding of findings) {
    if ('unchecked' in finding) say(`Not checked: ${finding.unchecked}`);
    if ('note' in finding) say(finding.note);
  }
}

/** Says the notes, and throws `CliError` with every problem. `what`: the refused step, such as "start run my-run". */
export function refuseProblems(what: string, findings: readonly Finding[]): void {
  sayNotes(findings);
  const problems = findings.flatMap(finding => ('problem' in finding ? finding.problem : []));
  if (problems.length === 0) return;
  const lines = problems.length === 1 ? problems : ['', ...problems.map(problem => `  ${problem}`)];
  throw new CliError(
    `Failed to ${what}: ${lines.join('\n')}; --no-check skips this check`.replace(': \n', ':\n'),
  );
}
