/** Counts of a pass over sources and of an upload, with a line of progress every two seconds. */
import {bytesText, counted, durationText} from '../../client/text/format.ts';

const SHOWN_EVERY_MS = 2000;

type Moved = {bytes: number; seconds: number};

function openProgress(say: (line: string) => void, lineOf: (moved: Moved) => string) {
  let [begun_ms, bytes] = [performance.now(), 0];
  const seconds = () => (performance.now() - begun_ms) / 1000;
  const timer = setInterval(() => say(lineOf({bytes, seconds: seconds()})), SHOWN_EVERY_MS);
  return {
    seconds,
    moved: (more: number) => {
      bytes += more;
    },
    restart: () => {
      [begun_ms, bytes] = [performance.now(), 0];
    },
    end: () => clearInterval(timer),
  };
}

export type PassProgress = ReturnType<typeof passProgress>;

/** One pass over the sources after the other. */
export function passProgress(say: (line: string) => void) {
  let what = '';
  const {moved, restart, end} = openProgress(say, ({bytes, seconds}) => {
    const rows = pass.rows > 0 ? `, ${counted(pass.rows, 'row')}` : '';
    return `${what}: ${bytesText(bytes)}${rows}, ${bytesText(Math.round(bytes / seconds))}/s, ${durationText(seconds)}`;
  });
  const begin = (name: string) => {
    what = name;
    pass.rows = 0;
    restart();
  };
  const pass = {rows: 0, begin, moved, end};
  return pass;
}

/** An upload of streams with `total` bytes. */
export function transferProgress(say: (line: string) => void, streams: number, total: number) {
  const counts = {uploaded: 0, already_there: 0, uploaded_bytes: 0};
  const done = () => counts.uploaded + counts.already_there;
  const {seconds, moved, end} = openProgress(say, ({bytes, seconds}) => {
    const rate = bytes / seconds;
    const left = rate > 0 ? `, ${durationText((total - bytes) / rate)} left` : '';
    return `${done()} of ${counted(streams, 'stream')}, ${bytesText(bytes)} of ${bytesText(total)}, ${bytesText(Math.round(rate))}/s${left}`;
  });
  const ended = ({isNew, bytes}: {isNew: boolean; bytes: number}) => {
    counts[isNew ? 'uploaded' : 'already_there'] += 1;
    if (isNew) counts.uploaded_bytes += bytes;
  };
  return {done, ended, moved, end, report: () => ({...counts, seconds: seconds()})};
}
