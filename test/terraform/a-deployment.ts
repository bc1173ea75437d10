/** Variables of a deployment, and the resources that Terraform makes of them. */
import {applyMocked, type Resource, type Variables} from '../../cli/terraform/mocked-apply.ts';

export const PROJECT = 'my-project-123';

export const VARIABLES: Variables = {
  project: PROJECT,
  region: 'us-central1',
  zones: ['us-central1-a', 'us-east5-b'],
  max_budget_usd: 100,
  ticket_key: '0'.repeat(32),
  alert_email: 'someone@example.com',
  operators: ['group:operators@example.com'],
  users: ['group:users@example.com'],
  hf_token_secret: `projects/${PROJECT}/secrets/hub`,
  git_token_secret: `github.com=projects/${PROJECT}/secrets/git`,
  job_secrets: {wandb: `projects/${PROJECT}/secrets/wandb`},
  notify: {
    format: 'json',
    url: 'https://hooks.example.com/gleaner',
    key_secret: `projects/${PROJECT}/secrets/notify`,
  },
  artifacts: {
    functions: {file: 'functions.zip', sha256: '0'.repeat(64)},
    bundle: {file: 'bundle.tar.gz', sha256: '1'.repeat(64)},
    environment: {file: 'environment.tar.gz', sha256: '2'.repeat(64)},
  },
};

const applied = new Map<string, Promise<Resource[]>>();

/** The resources of a deployment. Each name is applied once. */
export function resourcesOf(name = 'gleaner'): Promise<Resource[]> {
  const known = applied.get(name) ?? applyMocked({...VARIABLES, name}).then(({resources}) => resources);
  applied.set(name, known);
  return known;
}
