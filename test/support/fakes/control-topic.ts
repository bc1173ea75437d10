/** Topic control of a project, with a control plane that records the outcome which a test gives for a message. */
import {paths} from '../../../shared/domain/names.ts';
import type {Store} from '../../../shared/ports/ports.ts';
import {type GoogleProject, PROJECT} from '../google/google-project.ts';

type Message = Record<string, string>;

/** `outcomeOf`: `applied` or `rejected`; undefined for a message without a record. */
export function serveControl(
  google: GoogleProject,
  store: Store,
  outcomeOf: (message: Message) => string | undefined,
): void {
  const name = `projects/${PROJECT}/topics/control`;
  let published = 0;
  google.apis.add('pubsub');
  google.resources.set(name, {name});
  google.publish = async data => {
    const outcome = outcomeOf(JSON.parse(data));
    const id = String(++published);
    if (outcome) await store.transaction(async tx => tx.set(paths.control(id), {outcome, reason: 'why'}));
    return id;
  };
}
