variable "project" {
  description = "Id of the Google Cloud project."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project must be the id of a project, such as my-project-123, not its name or number."
  }
}

variable "region" {
  description = "Region of the buckets and the functions."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region must be a region such as us-central1: a zone or a multi-region does not work."
  }
}

variable "name" {
  description = "Name of the deployment, and prefix of its resources. Two deployments in one project need two names."
  type        = string
  default     = "gleaner"

  # Firestore needs four characters. The bucket of NAME-logs is that of the logs of NAME.
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{2,13}[a-z0-9]$", var.name)) && !endswith(var.name, "-logs")
    error_message = "name must have 4 to 15 characters: a to z, 0 to 9 and hyphens, a letter first, no hyphen and no -logs last."
  }
}

variable "zones" {
  description = "Zones of the TPUs. Append new zones: the order gives the address ranges of the subnets."
  type        = list(string)

  validation {
    condition     = length(var.zones) > 0 && length(distinct(var.zones)) == length(var.zones)
    error_message = "zones must name at least one zone, and each zone once."
  }
  validation {
    condition     = alltrue([for zone in var.zones : can(regex("^[a-z]+-[a-z]+[0-9]+-(ai[0-9]+)?[a-z]$", zone))])
    error_message = "zones must be zones such as us-central1-a or us-central1-ai1a."
  }
}

variable "allowed_zones" {
  description = "Zones that a message may name. Default: zones."
  type        = list(string)
  default     = null

  validation {
    condition     = var.allowed_zones == null || length(setsubtract(var.zones, coalesce(var.allowed_zones, []))) == 0
    error_message = "allowed_zones must contain every zone of zones."
  }
  validation {
    condition     = alltrue([for zone in coalesce(var.allowed_zones, []) : can(regex("^[a-z]+-[a-z]+[0-9]+-(ai[0-9]+)?[a-z]$", zone))])
    error_message = "allowed_zones must be zones such as us-central1-a or us-central1-ai1a."
  }
}

variable "model_sources" {
  description = "Sources of models that a run may name: hub, hub:ORG/, gs://BUCKET/PREFIX/. Default: the hub, and models/ of the data bucket."
  type        = list(string)
  default     = null

  validation {
    condition     = alltrue([for source in coalesce(var.model_sources, []) : can(regex("^(hub|hub:[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]*)?|gs://[a-z0-9][a-z0-9_.-]*/[^,]*)$", source))])
    error_message = "model_sources must be hub, hub:ORG/, hub:ORG/NAME or gs://BUCKET/PREFIX/."
  }
}

variable "tpu_provider" {
  description = "Where the TPUs of the default pool come from: tpu-api, or compute-engine for instances."
  type        = string
  default     = "tpu-api"

  validation {
    condition     = contains(["tpu-api", "compute-engine"], var.tpu_provider)
    error_message = "tpu_provider must be tpu-api or compute-engine."
  }
}

variable "tpu_providers" {
  description = "Providers that a pool may have. Each is listed every minute. Default: tpu_provider."
  type        = list(string)
  default     = null

  validation {
    condition     = var.tpu_providers == null || (length(setsubtract(coalesce(var.tpu_providers, []), ["tpu-api", "compute-engine"])) == 0 && contains(coalesce(var.tpu_providers, []), var.tpu_provider))
    error_message = "tpu_providers must name tpu-api, compute-engine or both, and tpu_provider among them."
  }
}

variable "disk_gb" {
  description = "Size of the boot disk of each instance of Compute Engine, in GB."
  type        = number
  default     = 100

  validation {
    condition     = var.disk_gb >= 50 && var.disk_gb <= 10000 && floor(var.disk_gb) == var.disk_gb
    error_message = "disk_gb must be a whole number from 50 to 10000."
  }
}

variable "accelerator" {
  description = "Accelerator type of each TPU node."
  type        = string
  default     = "v5litepod-1"

  validation {
    condition     = can(regex("^(v[0-9]+[a-z]*|tpu7x)-[0-9]+$", var.accelerator))
    error_message = "accelerator must be an accelerator type such as v5litepod-1 or v6e-8."
  }
}

variable "runtime_version" {
  description = "Software version of the TPU nodes, or image of the instances. Default: that of the generation of accelerator."
  type        = string
  default     = null

  validation {
    condition     = var.runtime_version == null || strcontains(coalesce(var.runtime_version, "any"), "/") || contains(lookup(local.runtime_versions, local.generation, [coalesce(var.runtime_version, "any")]), coalesce(var.runtime_version, "any"))
    error_message = "runtime_version does not fit accelerator: ${var.accelerator} needs ${join(" or ", lookup(local.runtime_versions, local.generation, []))}."
  }
  validation {
    condition     = var.runtime_version != null || contains(keys(local.runtime_versions), local.generation)
    error_message = "runtime_version has no default for ${var.accelerator}: name the software version that Google documents for this type."
  }
}

variable "spot" {
  description = "Whether the TPU nodes of the default pool are spot nodes. An on-demand node costs more and is not preempted."
  type        = bool
  default     = true
}

variable "provisioning" {
  description = "How the default pool asks for nodes: node (at once), queued-resource (through the queue of the zone), or flex-start (instances that wait)."
  type        = string
  default     = "node"

  validation {
    condition     = contains(var.tpu_provider == "tpu-api" ? ["node", "queued-resource"] : ["node", "flex-start"], var.provisioning)
    error_message = "provisioning must be node, queued-resource with tpu-api, or flex-start with compute-engine."
  }
  validation {
    condition     = var.provisioning != "flex-start" || !var.spot
    error_message = "provisioning flex-start needs spot = false: a flex-start instance is not preempted."
  }
}

locals {
  # For each timing its smallest seconds, or those that it must exceed, and its largest: `npm run docs` writes them.
  timings = jsondecode(file("${path.module}/timings.json"))
}

variable "timings" {
  description = "Timings in seconds that differ from their defaults, such as { create_s = 900 }. docs/inside/rules.md lists all of them with their defaults."
  type        = map(number)
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.timings), keys(local.timings))) == 0
    error_message = "timings must name timings of terraform/timings.json, such as retry_s for GLEANER_RETRY_S."
  }
  validation {
    condition = alltrue([
      for name, seconds in var.timings :
      seconds >= try(local.timings[name].least, 0) && seconds > try(local.timings[name].above, -1) && seconds <= try(local.timings[name].most, seconds)
    ])
    error_message = "timings must be within the limits of terraform/timings.json."
  }
}

variable "kept_days" {
  description = "Days for which documents are kept that differ from their defaults, such as { streams = 365 }. docs/inside/rules.md lists all of them with their defaults."
  type        = map(number)
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.kept_days), ["streams", "events", "commands"])) == 0
    error_message = "kept_days must name streams, events or commands."
  }
  validation {
    condition     = alltrue([for days in values(var.kept_days) : days >= 1 && days <= 3650 && floor(days) == days])
    error_message = "kept_days must be whole numbers from 1 to 3650."
  }
}

variable "workers_per_zone" {
  description = "Most TPU nodes of each zone, until a message changes the pool."
  type        = number
  default     = 1

  validation {
    condition     = var.workers_per_zone >= 1 && var.workers_per_zone <= 1000 && floor(var.workers_per_zone) == var.workers_per_zone
    error_message = "workers_per_zone must be a whole number from 1 to 1000."
  }
}

variable "max_workers" {
  description = "Most TPU nodes at once. No message can raise this ceiling."
  type        = number
  default     = 100

  validation {
    condition     = var.max_workers >= var.workers_per_zone * length(var.zones) && var.max_workers <= 100000
    error_message = "max_workers must be at most 100000, and at least workers_per_zone times the number of zones."
  }
}

variable "max_hosts" {
  description = "Most hosts of a TPU node. Above 1, TPU nodes may connect to each other."
  type        = number
  default     = 1

  validation {
    condition     = var.max_hosts >= 1 && var.max_hosts <= 256 && floor(var.max_hosts) == var.max_hosts
    error_message = "max_hosts must be a whole number from 1 to 256."
  }
}

variable "max_budget_usd" {
  description = "Most dollars that TPU nodes may cost in a UTC month. No message can raise this ceiling."
  type        = number

  validation {
    condition     = var.max_budget_usd > 0
    error_message = "max_budget_usd must be more than 0 dollars a month."
  }
}

variable "network" {
  description = "Network of the TPU nodes. Without a name, a network with a subnet in each region is made, with Cloud NAT if nat is true. With a name, nat says whether the network leads to the internet."
  type = object({
    name         = optional(string)
    subnetwork   = optional(string)
    nat          = optional(bool, true)
    external_ips = optional(bool, false)
  })
  default = {}

  validation {
    condition     = (var.network.name == null) == (var.network.subnetwork == null)
    error_message = "network needs name and subnetwork together: an existing network, and the name of its subnet in every region of the zones."
  }
}

variable "jobs_collection" {
  description = "Collection of Firestore with the documents of jobs."
  type        = string
  default     = "jobs"

  validation {
    condition     = can(regex("^[a-z][a-z0-9_-]{0,99}$", var.jobs_collection))
    error_message = "jobs_collection must have 1 to 100 characters: a to z, 0 to 9, hyphens and underscores, a letter first."
  }
  validation {
    condition     = !contains(["runs", "pools", "workers", "zones", "prices", "system", "tasks", "control", "events", "execs", "attempts", "hosts", "streams", "shards"], var.jobs_collection)
    error_message = "jobs_collection must not be a collection of the control plane, such as runs or workers."
  }
}

variable "exec_publishers" {
  description = "Members who may run commands on workers, such as user:someone@example.com: publishers on topic exec."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.exec_publishers : can(regex("^(user|group|serviceAccount):[^@: ]+@[^@ ]+[.][^@ ]+$", member))])
    error_message = "exec_publishers must be members such as user:someone@example.com, group:team@example.com or serviceAccount:bot@PROJECT.iam.gserviceaccount.com."
  }
}

variable "operators" {
  description = "Members who control runs, jobs and pools, such as group:operators@example.com: they publish on topic control, and read all state."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.operators : can(regex("^(user|group|serviceAccount):[^@: ]+@[^@ ]+[.][^@ ]+$", member))])
    error_message = "operators must be members such as user:someone@example.com, group:team@example.com or serviceAccount:bot@PROJECT.iam.gserviceaccount.com."
  }
}

variable "users" {
  description = "Members who upload streams and read activations, such as group:researchers@example.com. They send no control message."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.users : can(regex("^(user|group|serviceAccount):[^@: ]+@[^@ ]+[.][^@ ]+$", member))])
    error_message = "users must be members such as user:someone@example.com, group:team@example.com or serviceAccount:bot@PROJECT.iam.gserviceaccount.com."
  }
}

variable "backups" {
  description = "Backups of the database: days for which a daily backup is kept (0: no backup), and point-in-time recovery of the last seven days."
  type = object({
    daily_days             = optional(number, 7)
    point_in_time_recovery = optional(bool, true)
  })
  default = {}

  validation {
    condition     = var.backups.daily_days >= 0 && var.backups.daily_days <= 98 && floor(var.backups.daily_days) == var.backups.daily_days
    error_message = "backups.daily_days must be a whole number from 0 to 98, the longest time that Firestore keeps a backup."
  }
}

variable "audit_tpu_calls" {
  description = "Whether Cloud Logging also keeps each read and list of Cloud TPU. Creates and deletes are always in the log of admin activity."
  type        = bool
  default     = false
}

variable "alert_email" {
  description = "E-mail address that receives the alerts. Without it, alerts only show in the console."
  type        = string
  default     = null

  validation {
    condition     = var.alert_email == null || can(regex("^[^@ ]+@[^@ ]+[.][^@ ]+$", var.alert_email))
    error_message = "alert_email must be an e-mail address."
  }
}

variable "hf_token_secret" {
  description = "Existing secret with a token for the hub, projects/P/secrets/S or projects/P/secrets/S/versions/V."
  type        = string
  default     = null

  validation {
    condition     = var.hf_token_secret == null || can(regex("^projects/[a-z0-9][a-z0-9.:-]{0,62}/secrets/[A-Za-z0-9_-]{1,255}(/versions/[A-Za-z0-9_-]{1,63})?$", var.hf_token_secret))
    error_message = "hf_token_secret must be the name of a secret, projects/P/secrets/S, not the token itself."
  }
}

variable "git_token_secret" {
  description = "Host of private repositories, and an existing secret with a token for it: github.com=projects/P/secrets/S."
  type        = string
  default     = null

  validation {
    condition     = var.git_token_secret == null || can(regex("^[a-z0-9][a-z0-9.-]{0,252}(:[0-9]{1,5})?=projects/[a-z0-9][a-z0-9.:-]{0,62}/secrets/[A-Za-z0-9_-]{1,255}(/versions/[A-Za-z0-9_-]{1,63})?$", var.git_token_secret))
    error_message = "git_token_secret must be a host and the name of a secret, github.com=projects/P/secrets/S, not the token itself."
  }
}

variable "job_secrets" {
  description = "Existing secrets that jobs may name, by the name that jobs use: {\"wandb\": \"projects/P/secrets/S\"}."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([for name, secret in var.job_secrets :
    can(regex("^[a-z][a-z0-9_-]{0,62}$", name)) && can(regex("^projects/[a-z0-9][a-z0-9.:-]{0,62}/secrets/[A-Za-z0-9_-]{1,255}(/versions/[A-Za-z0-9_-]{1,63})?$", secret))])
    error_message = "job_secrets must be names of secrets by names such as wandb, projects/P/secrets/S, not the secrets themselves."
  }
}

variable "notify" {
  description = "Receiver of notifications: format json or slack; its address, or an existing secret with it; and for json an existing secret with the key of the signatures."
  type = object({
    format     = string
    url        = optional(string)
    url_secret = optional(string)
    key_secret = optional(string)
  })
  default = null

  validation {
    condition     = var.notify == null ? true : contains(["json", "slack"], var.notify.format) && (var.notify.url == null) != (var.notify.url_secret == null)
    error_message = "notify needs the format json or slack, and either url or url_secret."
  }
  validation {
    condition     = var.notify == null ? true : var.notify.format == "json" ? var.notify.key_secret != null : var.notify.url == null
    error_message = "notify in the format json needs key_secret. An address of Slack is a secret: store it, and name the secret as url_secret."
  }
  validation {
    condition     = try(var.notify.url, null) == null ? true : can(regex("^https://[a-z0-9-]+([.][a-z0-9-]+)+(:[0-9]{1,5})?(/[^#\\s]*)?$", var.notify.url))
    error_message = "url of notify must be an https address with a public name, such as https://hooks.example.com/gleaner."
  }
  validation {
    condition = alltrue([for name in [try(var.notify.url_secret, null), try(var.notify.key_secret, null)] :
    name == null ? true : can(regex("^projects/[a-z0-9][a-z0-9.:-]{0,62}/secrets/[A-Za-z0-9_-]{1,255}(/versions/[A-Za-z0-9_-]{1,63})?$", name))])
    error_message = "url_secret and key_secret of notify must be names of secrets, projects/P/secrets/S, not the secrets themselves."
  }
}

variable "job_egress" {
  description = "Network of jobs, commands and setup scripts: nat, as the worker has it, or none."
  type        = string
  default     = "nat"

  validation {
    condition     = contains(["nat", "none"], var.job_egress)
    error_message = "job_egress must be nat or none."
  }
}

variable "firestore_location" {
  description = "Location of the database, which can never change. Default: region."
  type        = string
  default     = null

  validation {
    condition     = var.firestore_location == null || can(regex("^(nam5|nam7|eur3|[a-z]+-[a-z]+[0-9]+)$", var.firestore_location))
    error_message = "firestore_location must be a region such as us-central1, or nam5, nam7 or eur3."
  }
}

variable "eventarc_location" {
  description = "Location of the trigger of new documents: a region, nam5 or eur3; none makes no trigger, and a tick takes up each job within a minute. Default: that of the database, by Google's page."
  type        = string
  default     = null

  validation {
    condition     = var.eventarc_location == null || can(regex("^(none|nam5|nam7|eur3|[a-z]+-[a-z]+[0-9]+)$", var.eventarc_location))
    error_message = "eventarc_location must be a region such as us-central1, nam5, nam7, eur3 or none."
  }
}

variable "scheduler_region" {
  description = "Region of the Scheduler job, for a region that Cloud Scheduler does not serve. Default: region."
  type        = string
  default     = null

  validation {
    condition     = var.scheduler_region == null || can(regex("^[a-z]+-[a-z]+[0-9]+$", var.scheduler_region))
    error_message = "scheduler_region must be a region such as us-central1."
  }
}

locals {
  scheduler_region = coalesce(var.scheduler_region, var.region)
}

variable "artifacts" {
  description = "Files in dist/ and their digests. `npm run build` writes them into dist/artifacts.auto.tfvars.json."
  type = object({
    functions   = object({ file = string, sha256 = string })
    bundle      = object({ file = string, sha256 = string })
    environment = optional(object({ file = string, sha256 = string }))
  })

  validation {
    condition     = alltrue([for artifact in values(var.artifacts) : artifact == null ? true : can(regex("^[0-9a-f]{64}$", artifact.sha256)) && !strcontains(artifact.file, "/")])
    error_message = "artifacts must name files in dist/ with their sha256: run `npm run build`, then pass -var-file=../dist/artifacts.auto.tfvars.json."
  }
}

variable "ticket_key" {
  description = "Random key of the tickets of workers, such as `openssl rand -hex 32` prints. Only the key of the first apply counts."
  type        = string
  sensitive   = true

  validation {
    condition     = can(regex("^[0-9A-Za-z]{32,256}$", var.ticket_key))
    error_message = "ticket_key must have 32 or more letters and digits: export TF_VAR_ticket_key=$(openssl rand -hex 32)"
  }
}
