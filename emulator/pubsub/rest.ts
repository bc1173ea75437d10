import type {Route} from '../http/http.ts';
import {readJson} from '../http/request-body.ts';
import {messageOf, type Topics} from './topics.ts';

export function pubsubRoutes(topics: Topics): Route[] {
  const path = '/v1/projects/{project}/topics/{topic}';
  const nameOf = (params: Record<string, string>) => `projects/${params.project}/topics/${params.topic}`;
  return [
    [
      'POST',
      `${path}:publish`,
      async ({params, body}) => {
        const {messages} = await readJson(body, 16_000_000);
        const parsed = Array.isArray(messages) ? messages.map(messageOf) : [];
        return {json: {messageIds: topics.publish(nameOf(params), parsed)}};
      },
    ],
    [
      'GET',
      '/v1/projects/{project}/topics',
      ({params}) => ({json: {topics: topics.list(params.project ?? '')}}),
    ],
    ['GET', path, ({params}) => ({json: topics.get(nameOf(params))})],
    ['PUT', path, ({params}) => ({json: topics.create(nameOf(params))})],
  ];
}
