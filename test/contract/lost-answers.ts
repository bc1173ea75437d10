/** A proxy before a gRPC server that executes a call and loses its answer, as a connection does that breaks late. */
import {connect, createServer, type IncomingHttpHeaders, type ServerHttp2Stream} from 'node:http2';
import {listen} from '../support/machine/listen.ts';

export type LossyProxy = {
  host: string;
  /** Executes the next call with this end of its path, and answers UNAVAILABLE. */
  loseAnswerTo: (method: string) => void;
  lost: () => number;
  stop: () => Promise<void>;
};

export async function startLossyProxy(target: string): Promise<LossyProxy> {
  let losing: string | undefined;
  let lost = 0;
  const upstream = connect(`http://${target}`);
  const server = createServer();
  const sessions = new Set<{destroy: () => void}>();
  server.on('session', session => sessions.add(session));
  server.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
    const lose = losing !== undefined && String(headers[':path']).endsWith(losing);
    if (lose) losing = undefined;
    const {connection: _, ...forwarded} = headers;
    const call = upstream.request(forwarded);
    stream.pipe(call);
    stream.on('error', () => call.close());
    call.on('error', () => stream.close());
    if (lose) {
      call.resume();
      call.on('end', () => {
        lost++;
        stream.respond(
          {':status': 200, 'content-type': 'application/grpc', 'grpc-status': '14', 'grpc-message': 'lost'},
          {endStream: true},
        );
      });
      return;
    }
    call.on('response', ({':status': status, ...answer}) => {
      if ('grpc-status' in answer) return stream.respond({':status': status, ...answer}, {endStream: true});
      let trailers = {};
      call.on('trailers', received => {
        trailers = received;
      });
      stream.respond({':status': status, ...answer}, {waitForTrailers: true});
      stream.on('wantTrailers', () => stream.sendTrailers(trailers));
      call.pipe(stream);
    });
  });
  const host = await listen(server);
  return {
    host,
    loseAnswerTo: method => {
      losing = method;
    },
    lost: () => lost,
    stop: async () => {
      upstream.destroy();
      for (const session of sessions) session.destroy();
      await new Promise(resolve => server.close(resolve));
    },
  };
}
