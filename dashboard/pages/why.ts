/** Why work waits, in one sentence with the next step. */
import type {Answers} from '../../client/json/index.ts';
import {command, type Html, html, withCommands} from '../html/html.ts';

export function sentence({reason, moves, next_step, behind}: Answers['why']): Html {
  if (reason === null) return html`<p class="lead">${capitalised(moves)}.</p>`;
  return html`<p class="lead">${withCommands(capitalised(reason))}</p>${
    behind ? html`<p class="quiet">Behind ${withCommands(behind)}</p>` : ''
  }${next_step && !next_step.startsWith('nothing') ? html`<p class="quiet">Next step: ${stepOf(next_step)}</p>` : ''}`;
}

/** A step may end with a command without backticks. */
function stepOf(text: string): Html {
  const at = text.search(/gleaner [a-z]/);
  if (text.includes('`') || at < 0) return withCommands(text);
  return html`${text.slice(0, at)}${command(text.slice(at))}`;
}

/** A sentence begins with a capital letter, unless it begins with a name. */
export function capitalised(text: string): string {
  return /^[a-z]+ /.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}
