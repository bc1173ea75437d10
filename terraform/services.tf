locals {
  services = toset([
    "artifactregistry", "cloudbilling", "cloudbuild", "cloudfunctions", "cloudquotas", "cloudresourcemanager",
    "cloudscheduler", "compute", "eventarc", "eventarcpublishing", "firestore", "iam", "logging", "monitoring", "pubsub",
    "run", "secretmanager", "storage", "sts", "tpu",
  ])
}

resource "google_project_service" "service" {
  for_each = local.services
  service  = "${each.key}.googleapis.com"
  # Other software of the project may use the API.
  disable_on_destroy = false
}

# Read by each plan. A dependency on the APIs would hide the number, and with it the environment of the functions, from a first plan.
data "google_project" "this" {
  project_id = var.project
}

locals {
  project_number = data.google_project.this.number
  # Google makes this account when the API is first used: a first apply may need one repeat.
  pubsub_agent = "serviceAccount:service-${local.project_number}@gcp-sa-pubsub.iam.gserviceaccount.com"
}

resource "google_project_iam_audit_config" "tpu" {
  count   = var.audit_tpu_calls ? 1 : 0
  project = var.project
  service = "tpu.googleapis.com"

  audit_log_config { log_type = "ADMIN_READ" }
  audit_log_config { log_type = "DATA_READ" }
  audit_log_config { log_type = "DATA_WRITE" }
}
