/** Topic control of a project, with a control plane that records the outcome which a test gives for a message. */
import type {Route} from '../../../emulator/http/http.ts';
import {readJson} from '../../../emulator/http/request-body.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {Store} from '../../../shared/ports/ports.ts';
import {PROJECT} from './google-project.ts';

type Message = Record<string, string>;

/** `outcomeOf`: `applied` or `rejected`; undefined for a message without a record. */
export function controlTopic(store: Store, outcomeOf: (message: Message) => string | undefined): Route {
  let published = 0;
  return [
    'POST',
    `/v1/projects/${PROJECT}/topics/control:publish`,
    async ({body}) => {
      const {messages} = (await readJson(body)) as {messages: {data: string}[]};
      const outcome = outcomeOf(JSON.parse(Buffer.from(messages[0]?.data ?? '', 'base64').toString()));
      const id = String(++published);
      if (outcome) await store.transaction(async tx => tx.set(paths.control(id), {outcome, reason: 'why'}));
      return {json: {messageIds: [id]}};
    },
  ];
}
