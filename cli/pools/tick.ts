import {type CloudOptions, connect} from '../../client/connection/connect.ts';
import {requireRunning} from '../../client/connection/connection.ts';
import {googleOf} from '../../client/google/api.ts';
import {openSchedule} from '../../client/google/schedule.ts';
import {CliError} from '../../client/text/errors.ts';
import {print, quoted} from '../../client/text/output.ts';
import {tickLocation} from '../../emulator/scheduler.ts';
import {tickJobOf} from '../../shared/domain/deployment.ts';
import {deployedOf, readSettings} from '../deploy/settings.ts';

/** Actions on the job of Cloud Scheduler: the verb of gcloud for each, and what it has done. */
const ACTIONS = {
  now: ['run', 'a tick was asked for'],
  pause: [
    'pause',
    'the minutely tick is paused: events still start ticks, and a lost event may stay without a tick',
  ],
  resume: ['resume', 'the minutely tick runs again'],
  state: ['describe', 'the minutely tick'],
} as const;

type TickOptions = CloudOptions & {location?: string};

/** Runs, pauses or resumes the job that asks for a tick every minute, or prints its state. */
export async function tick(action: keyof typeof ACTIONS, options: TickOptions): Promise<void> {
  const connection = await connect(options);
  try {
    const {project, deployment, settings: file} = connection;
    const settings = async () => (file ? readSettings(file) : {project, region: tickLocation});
    const {location = deployedOf(await settings()).scheduler_region} = options;
    const [verb, done] = ACTIONS[action];
    const name = tickJobOf(deployment);
    const command = `gcloud scheduler jobs ${verb} ${name} --location=${quoted(location)} --project=${quoted(project)}`;
    if (options.dry_run) return print<'tick'>(options.json, {command}, [command]);
    requireRunning(connection);
    const schedule = openSchedule(googleOf(connection), {project, location, deployment});
    try {
      const {state} = await schedule[verb === 'describe' ? 'read' : verb]();
      print<'tick'>(options.json, {job: schedule.job, action, state}, [`${done} (${state})`]);
    } catch (error) {
      throw new CliError((error as Error).message, {cause: error});
    }
  } finally {
    await connection.close();
  }
}
