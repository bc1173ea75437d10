locals {
  accounts = {
    control    = "Runs the event functions: plans the work, and creates and deletes TPU nodes."
    worker-api = "Runs worker-api, which answers the agents on TPU nodes."
    worker     = "Runs the agent on each TPU node."
    invoker    = "Signs the requests of push subscriptions and of Eventarc to the event functions."
    build      = "Builds the functions."
  }
  # A subset of tpu.admin, without rights to start, stop, simulate or reimage nodes.
  # Cloud TPU has no permissions of queued resources: their methods need those of nodes.
  tpu_node_permissions = concat([for verb in ["create", "delete", "get", "list"] : "tpu.nodes.${verb}"], ["tpu.operations.get"])
  # Instances with TPUs have a boot disk, labels, metadata and the account of the workers.
  tpu_instance_permissions = concat(
    [for verb in ["create", "delete", "get", "list", "setLabels", "setMetadata", "setServiceAccount"] : "compute.instances.${verb}"],
    ["compute.disks.create", "compute.disks.setLabels", "compute.subnetworks.use", "compute.subnetworks.useExternalIp", "compute.zoneOperations.get"],
  )
  tpu_permissions = concat(
    contains(local.tpu_providers, "tpu-api") ? local.tpu_node_permissions : [],
    contains(local.tpu_providers, "compute-engine") ? local.tpu_instance_permissions : [],
  )
}

resource "google_service_account" "account" {
  for_each     = local.accounts
  account_id   = "${var.name}-${each.key}"
  display_name = "Gleaner ${var.name}: ${each.key}"
  description  = each.value
  depends_on   = [google_project_service.service]
}

resource "google_project_iam_custom_role" "tpu" {
  role_id     = "${replace(var.name, "-", "_")}_tpu"
  title       = "Gleaner ${var.name}: TPU nodes"
  permissions = local.tpu_permissions
  # Google keeps the id of a deleted role for 37 days, so a destroy keeps the role for the next deployment.
  deletion_policy = "ABANDON"
  depends_on      = [google_project_service.service]
}

resource "google_project_iam_member" "tpu" {
  project = var.project
  role    = google_project_iam_custom_role.tpu.id
  member  = google_service_account.account["control"].member
}

# A TPU node runs as the worker's account, so its creator acts as this account, and as no other.
resource "google_service_account_iam_member" "control_acts_as_worker" {
  service_account_id = google_service_account.account["worker"].name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.account["control"].member
}

# Pub/Sub signs its pushes as the invoker.
resource "google_service_account_iam_member" "pubsub_signs_as_invoker" {
  service_account_id = google_service_account.account["invoker"].name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = local.pubsub_agent
}

resource "google_project_iam_member" "build_writes_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.account["build"].member
}

# Cloud Functions copies the source into this bucket of its own, which exists after the first build.
resource "google_project_iam_member" "build_reads_sources" {
  project = var.project
  role    = "roles/storage.objectViewer"
  member  = google_service_account.account["build"].member

  condition {
    title      = "Sources of functions in ${var.region}"
    expression = "resource.name.startsWith(\"projects/_/buckets/gcf-v2-sources-${local.project_number}-${var.region}/objects/\")"
  }
}
