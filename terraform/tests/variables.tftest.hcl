mock_provider "google" {
  source = "./tests/mocks"
}

# A plan takes a second, so each run has one wrong value of several variables.

run "a_wrong_value_of_each_variable_is_refused" {
  command = plan
  expect_failures = [
    var.project,
    var.region,
    var.name,
    var.zones,
    var.model_sources,
    var.accelerator,
    var.workers_per_zone,
    var.max_budget_usd,
    var.network,
    var.alert_email,
    var.hf_token_secret,
    var.git_token_secret,
    var.job_secrets,
    var.notify,
    var.job_egress,
    var.firestore_location,
    var.artifacts,
    var.ticket_key,
    var.jobs_collection,
    var.exec_publishers,
    var.provisioning,
    var.timings,
    var.operators,
    var.users,
    var.backups,
  ]
  variables {
    # a project number
    project = "123456789012"
    # a multi region
    region = "us"
    # a name of three characters
    name = "abc"
    # no zone
    zones = []
    # a folder of models
    model_sources = ["folder"]
    # an accelerator without a size
    accelerator = "v5litepod"
    # half a worker
    workers_per_zone = 0.5
    # no budget
    max_budget_usd = 0
    # a network without a subnetwork
    network = { name = "default" }
    # an address without a host
    alert_email = "someone"
    # a token in place of its secret
    hf_token_secret = "hf_abcdef"
    # a token in place of a host and its secret
    git_token_secret = "ghp_abcdef"
    # a key in place of its secret
    job_secrets = { wandb = "0123456789abcdef" }
    # an address of Slack in place of its secret
    notify = { format = "slack", url = "https://hooks.slack.com/services/T0/B0/x" }
    # a way out that Google does not know
    job_egress = "all"
    # an unknown location
    firestore_location = "us"
    # a digest of another kind
    artifacts = {
      functions   = { file = "functions.zip", sha256 = "latest" }
      bundle      = { file = "bundle.tar.gz", sha256 = "latest" }
      environment = { file = "environment.tar.gz", sha256 = "latest" }
    }
    # a short ticket key
    ticket_key = "secret"
    # a collection of the control plane
    jobs_collection = "workers"
    # everybody as a publisher of commands
    exec_publishers = ["allUsers"]
    # no value of the list
    provisioning = "spot"
    # no timing of the functions
    timings = { creates_s = 900 }
    # everybody, and an address without its kind
    operators = ["allAuthenticatedUsers"]
    users     = ["someone@example.com"]
    # longer than Firestore keeps a backup
    backups = { daily_days = 99 }
  }
}

run "a_second_wrong_value_is_refused" {
  command = plan
  expect_failures = [
    var.name,
    var.allowed_zones,
    var.max_workers,
    var.model_sources,
    var.jobs_collection,
  ]
  variables {
    # a name with a capital
    name = "Gleaner"
    # a zone that is not allowed
    allowed_zones = ["us-east5-b"]
    # more workers than the ceiling
    max_workers = 0
    # a model source with a comma
    model_sources = ["gs://models/a,hub"]
    # a collection with a slash
    jobs_collection = "team/jobs"
  }
}

run "a_third_wrong_value_is_refused" {
  command = plan
  expect_failures = [
    var.name,
    var.zones,
    var.runtime_version,
  ]
  variables {
    # the software of another generation
    accelerator     = "v6e-8"
    runtime_version = "v2-alpha-tpuv5-lite"
    # a name of sixteen characters
    name = "abcdefghijklmnop"
    # a zone twice
    zones = ["us-central1-a", "us-central1-a"]
  }
}

run "a_fourth_wrong_value_is_refused" {
  command         = plan
  expect_failures = [var.zones]
  variables {
    # a region as zone
    zones = ["us-central1"]
  }
}

run "zones_on_another_continent_than_the_bucket" {
  command         = plan
  expect_failures = [check.zones_are_near_the_bucket]
  variables {
    zones = ["europe-west4-b"]
  }
}
