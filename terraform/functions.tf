locals {
  # Cloud Run gives each service this URL before it exists, so no function needs an attribute of itself.
  urls = { for name in keys(local.functions) : name => "https://${var.name}-${name}-${local.project_number}.${var.region}.run.app" }

  tpu_providers = coalesce(var.tpu_providers, [var.tpu_provider])

  # Generation of TPUs => software versions of its nodes. The first one is the default.
  node_versions = {
    v2        = ["tpu-ubuntu2204-base"]
    v3        = ["tpu-ubuntu2204-base"]
    v4        = ["tpu-ubuntu2204-base"]
    v5litepod = ["v2-alpha-tpuv5-lite"]
    v5p       = ["v2-alpha-tpuv5"]
    v6e       = ["v2-alpha-tpuv6e", "v6e-ubuntu-2404"]
  }
  # Generation of TPUs => families of Google's images for its instances.
  images = {
    v5p   = ["ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e"]
    v6e   = ["ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e"]
    tpu7x = ["ubuntu-accel-2404-amd64-tpu-tpu7x"]
  }
  runtime_versions = { "tpu-api" = local.node_versions, "compute-engine" = local.images }[var.tpu_provider]
  generation       = split("-", var.accelerator)[0]
  runtime_version  = coalesce(var.runtime_version, try(local.runtime_versions[local.generation][0], null))

  allowed_zones = coalesce(var.allowed_zones, var.zones)
  model_sources = coalesce(var.model_sources, ["hub", "gs://${local.bucket}/models/"])
  environment = merge(
    {
      GLEANER_PROJECT                 = var.project
      GLEANER_DEPLOYMENT              = var.name
      GLEANER_BUCKET                  = google_storage_bucket.data.name
      GLEANER_REGION                  = var.region
      GLEANER_LOGS_BUCKET             = google_storage_bucket.logs.name
      GLEANER_CHECKPOINTS_BUCKET      = google_storage_bucket.checkpoints.name
      GLEANER_STORE                   = "firestore:${google_firestore_database.state.name}"
      GLEANER_WORKER_API              = local.urls["worker-api"]
      GLEANER_BUNDLE                  = var.artifacts.bundle.sha256
      GLEANER_RELEASE                 = substr(var.artifacts.functions.sha256, 0, 12)
      GLEANER_WORKER_SERVICE_ACCOUNT  = google_service_account.account["worker"].email
      GLEANER_CONTROL_SERVICE_ACCOUNT = google_service_account.account["control"].email
      GLEANER_NETWORK                 = local.network
      GLEANER_SUBNETWORK              = local.subnetwork
      GLEANER_EXTERNAL_IPS            = tostring(var.network.external_ips)
      GLEANER_INTERNET                = tostring(var.network.external_ips || var.network.nat)
      GLEANER_JOB_EGRESS              = var.job_egress
      GLEANER_JOBS_COLLECTION         = var.jobs_collection
      GLEANER_ZONES                   = join(",", var.zones)
      GLEANER_ALLOWED_ZONES           = join(",", local.allowed_zones)
      GLEANER_WORKERS_PER_ZONE        = tostring(var.workers_per_zone)
      GLEANER_MAX_WORKERS             = tostring(var.max_workers)
      GLEANER_MAX_HOSTS               = tostring(var.max_hosts)
      GLEANER_MAX_BUDGET_USD          = tostring(var.max_budget_usd)
      GLEANER_MODEL_SOURCES           = join(",", local.model_sources)
      GLEANER_PROVIDER                = var.tpu_provider
      GLEANER_PROVIDERS               = join(",", local.tpu_providers)
      GLEANER_DISK_GB                 = tostring(var.disk_gb)
      GLEANER_ACCELERATOR             = var.accelerator
      GLEANER_RUNTIME_VERSION         = local.runtime_version
      GLEANER_SPOT                    = tostring(var.spot)
      GLEANER_PROVISIONING            = var.provisioning
    },
    # The functions have the default of every other timing.
    { for name, seconds in var.timings : "GLEANER_${upper(name)}" => tostring(seconds) },
    { for name, days in var.kept_days : "GLEANER_${upper(name)}_DAYS" => tostring(days) },
    var.hf_token_secret == null ? {} : { GLEANER_HF_TOKEN_SECRET = var.hf_token_secret },
    var.git_token_secret == null ? {} : { GLEANER_GIT_TOKEN_SECRET = var.git_token_secret },
    length(var.job_secrets) == 0 ? {} : { GLEANER_JOB_SECRETS = join(",", [for name, secret in var.job_secrets : "${name}=${secret}"]) },
    var.notify == null ? {} : { GLEANER_NOTIFY = var.notify.format },
    try(var.notify.url, null) == null ? {} : { GLEANER_NOTIFY_URL = var.notify.url },
  )
  # on-tpu signs the ticket of a new node, and worker-api checks it.
  with_ticket_key = ["on-tpu", "worker-api"]
}

resource "google_artifact_registry_repository" "functions" {
  repository_id = "${var.name}-functions"
  location      = var.region
  format        = "DOCKER"
  depends_on    = [google_project_service.service]

  cleanup_policies {
    id     = "keep-recent"
    action = "KEEP"
    most_recent_versions {
      keep_count = 3
    }
  }
  cleanup_policies {
    id     = "delete-old"
    action = "DELETE"
    condition {
      older_than = "2592000s"
    }
  }
}

resource "google_artifact_registry_repository_iam_member" "build_writes_images" {
  location   = google_artifact_registry_repository.functions.location
  repository = google_artifact_registry_repository.functions.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.account["build"].member
}

resource "google_cloudfunctions2_function" "function" {
  for_each = local.functions
  name     = "${var.name}-${each.key}"
  location = var.region

  build_config {
    runtime           = "nodejs24"
    entry_point       = each.key
    service_account   = google_service_account.account["build"].name
    docker_repository = google_artifact_registry_repository.functions.id
    source {
      storage_source {
        bucket = google_storage_bucket_object.functions.bucket
        object = google_storage_bucket_object.functions.name
      }
    }
  }
  service_config {
    service_account_email            = google_service_account.account[each.key == "worker-api" ? "worker-api" : "control"].email
    available_memory                 = each.value.memory
    available_cpu                    = tostring(each.value.cpu)
    timeout_seconds                  = each.value.timeout_s
    max_instance_count               = each.value.instances
    max_instance_request_concurrency = each.value.concurrency
    # Pub/Sub and Eventarc of the project count as internal. Workers and the ping of on-tick come from outside.
    ingress_settings               = each.value.trigger.kind == "http" ? "ALLOW_ALL" : "ALLOW_INTERNAL_ONLY"
    all_traffic_on_latest_revision = true
    environment_variables          = local.environment

    dynamic "secret_environment_variables" {
      for_each = contains(local.with_ticket_key, each.key) ? [google_secret_manager_secret_version.ticket_key] : []
      content {
        key        = "GLEANER_TICKET_KEY"
        project_id = var.project
        secret     = google_secret_manager_secret.ticket_key.secret_id
        version    = secret_environment_variables.value.version
      }
    }

    # on-task sends notifications.
    dynamic "secret_environment_variables" {
      for_each = each.key == "on-task" ? local.notify_secrets : {}
      content {
        key        = secret_environment_variables.key
        project_id = secret_environment_variables.value.project
        secret     = secret_environment_variables.value.secret
        version    = secret_environment_variables.value.version
      }
    }
  }
  depends_on = [
    google_artifact_registry_repository_iam_member.build_writes_images,
    google_project_iam_member.build_reads_sources,
    google_project_iam_member.build_writes_logs,
    google_secret_manager_secret_iam_member.notify,
    google_secret_manager_secret_iam_member.of_workers,
    google_secret_manager_secret_iam_member.ticket_key,
  ]
}

resource "google_cloud_run_v2_service_iam_member" "invoker" {
  for_each = toset(concat(keys(local.events), keys(local.documents)))
  name     = google_cloudfunctions2_function.function[each.key].name
  location = var.region
  role     = "roles/run.invoker"
  member   = google_service_account.account["invoker"].member
}

# Agents call worker-api, and on-tick pings worker-api.
resource "google_cloud_run_v2_service_iam_member" "worker_api" {
  for_each = toset(["control", "worker"])
  name     = google_cloudfunctions2_function.function["worker-api"].name
  location = var.region
  role     = "roles/run.invoker"
  member   = google_service_account.account[each.key].member
}
