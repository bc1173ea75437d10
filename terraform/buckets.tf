locals {
  bucket      = "${var.project}-${var.name}"
  logs_bucket = "${var.project}-${var.name}-logs"

  # Folder of the data bucket => accounts and their role. A role on a folder covers lists below the folder.
  # VMs read what a boot needs. For all else worker-api gives them tokens for a lease, with a part of its own rights.
  folders = {
    datasets     = { control = "clear", worker-api = "read" }
    activations  = { control = "replace", worker-api = "create" }
    partials     = { control = "clear", worker-api = "replace" }
    models       = { control = "read", worker-api = "read" }
    bundles      = { worker = "read" }
    environments = { worker = "read" }
    code         = { worker-api = "read" }
    jobs         = { control = "read", worker-api = "create" }
    execs        = { worker-api = "create" }
    set-aside    = { control = "create" }
    system       = { control = "replace" }
  }
  folder_roles = merge([
    for folder, roles in local.folders : { for account, role in roles : "${folder}/${account}" => { folder = folder, account = account, role = role } }
  ]...)
  storage_permissions = {
    read    = ["get", "list"]
    create  = ["create", "get", "list"]
    replace = ["create", "delete", "get", "list"]
    clear   = ["delete", "get", "list"]
    write   = ["create", "delete"]
  }
}

resource "google_project_iam_custom_role" "storage" {
  for_each        = local.storage_permissions
  role_id         = "${replace(var.name, "-", "_")}_storage_${each.key}"
  title           = "Gleaner ${var.name}: ${each.key} objects"
  permissions     = [for verb in each.value : "storage.objects.${verb}"]
  deletion_policy = "ABANDON"
  depends_on      = [google_project_service.service]
}

resource "google_storage_bucket" "data" {
  name                        = local.bucket
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  # A destroy keeps the data.
  deletion_policy = "ABANDON"
  depends_on      = [google_project_service.service]

  soft_delete_policy {
    retention_duration_seconds = 604800
  }
  # The control plane deletes the partial shards of a complete stream. This rule deletes missed objects.
  lifecycle_rule {
    action { type = "Delete" }
    condition {
      age            = 30
      matches_prefix = ["partials/"]
    }
  }
  # Shards of a run with expire_days are created with their custom time: a day before they expire.
  lifecycle_rule {
    action { type = "Delete" }
    condition {
      days_since_custom_time = 1
      matches_prefix         = ["activations/"]
    }
  }
  # `gleaner doctor` tries a write here, also for people who may delete nothing.
  lifecycle_rule {
    action { type = "Delete" }
    condition {
      age            = 1
      matches_prefix = ["code/doctor/"]
    }
  }
  lifecycle_rule {
    action { type = "AbortIncompleteMultipartUpload" }
    condition { age = 7 }
  }
}

resource "google_storage_bucket" "logs" {
  name                        = local.logs_bucket
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  # Logs of workers expire anyway.
  force_destroy = true
  depends_on    = [google_project_service.service]

  # A worker overwrites its log every few seconds, and soft delete would keep each version.
  soft_delete_policy {
    retention_duration_seconds = 0
  }
  lifecycle_rule {
    action { type = "Delete" }
    condition { age = 30 }
  }
  lifecycle_rule {
    action { type = "AbortIncompleteMultipartUpload" }
    condition { age = 7 }
  }
}

# Versions of checkpoints replace each other, and soft delete would bill each of them for days.
resource "google_storage_bucket" "checkpoints" {
  name                        = "${local.bucket}-checkpoints"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  # A destroy keeps the data.
  deletion_policy = "ABANDON"
  depends_on      = [google_project_service.service]

  soft_delete_policy {
    retention_duration_seconds = 0
  }
  lifecycle_rule {
    action { type = "AbortIncompleteMultipartUpload" }
    condition { age = 7 }
  }
}

resource "google_storage_managed_folder" "data" {
  for_each = local.folders
  bucket   = google_storage_bucket.data.name
  name     = "${each.key}/"
  # Removes the folder's rights, and keeps its objects.
  force_destroy = true
}

resource "google_storage_managed_folder_iam_member" "data" {
  for_each       = local.folder_roles
  bucket         = google_storage_bucket.data.name
  managed_folder = google_storage_managed_folder.data[each.value.folder].name
  role           = google_project_iam_custom_role.storage[each.value.role].id
  member         = google_service_account.account[each.value.account].member
}

resource "google_storage_managed_folder" "checkpoints" {
  bucket = google_storage_bucket.checkpoints.name
  name   = "checkpoints/"
  # Removes the folder's rights, and keeps its objects.
  force_destroy = true
}

# Agents and jobs get parts of the rights of worker-api; the control plane deletes versions that nobody restores.
resource "google_storage_managed_folder_iam_member" "checkpoints" {
  for_each       = { worker-api = "replace", control = "clear" }
  bucket         = google_storage_bucket.checkpoints.name
  managed_folder = google_storage_managed_folder.checkpoints.name
  role           = google_project_iam_custom_role.storage[each.value].id
  member         = google_service_account.account[each.key].member
}

# Libraries of jobs read the settings of a bucket before they delete in it.
resource "google_storage_bucket_iam_member" "worker_api_sees_checkpoints" {
  bucket = google_storage_bucket.checkpoints.name
  role   = "roles/storage.bucketViewer"
  member = google_service_account.account["worker-api"].member
}

resource "google_storage_managed_folder" "logs" {
  bucket        = google_storage_bucket.logs.name
  name          = "logs/"
  force_destroy = true
}

# Tokens of incarnations write logs. An overwrite needs the right to delete.
resource "google_storage_managed_folder_iam_member" "worker_api_writes_logs" {
  bucket         = google_storage_bucket.logs.name
  managed_folder = google_storage_managed_folder.logs.name
  role           = google_project_iam_custom_role.storage["write"].id
  member         = google_service_account.account["worker-api"].member
}

resource "google_storage_bucket_object" "functions" {
  bucket = google_storage_bucket.data.name
  name   = "functions/${var.artifacts.functions.sha256}.zip"
  source = "${path.module}/../dist/${var.artifacts.functions.file}"
  # `gleaner deploy --artifacts` goes back to an earlier zip.
  deletion_policy = "ABANDON"
}

resource "google_storage_bucket_object" "bundle" {
  bucket       = google_storage_bucket.data.name
  name         = "bundles/${var.artifacts.bundle.sha256}.tar.gz"
  source       = "${path.module}/../dist/${var.artifacts.bundle.file}"
  content_type = "application/gzip"
  # Nodes that boot during a deployment still ask for the previous bundle.
  deletion_policy = "ABANDON"
}

# CPython and all locked packages. A boot fetches nothing else except the bundle.
resource "google_storage_bucket_object" "environment" {
  count        = var.artifacts.environment == null ? 0 : 1
  bucket       = google_storage_bucket.data.name
  name         = "environments/${var.artifacts.environment.sha256}.tar.gz"
  source       = "${path.module}/../dist/${var.artifacts.environment.file}"
  content_type = "application/gzip"
  # Nodes of an earlier deployment, and of a way back to it, still ask for the previous environment.
  deletion_policy = "ABANDON"

  # Some hundred MB, from a laptop.
  timeouts {
    create = "120m"
  }
}

check "zones_are_near_the_bucket" {
  assert {
    condition     = alltrue([for zone in local.allowed_zones : split("-", zone)[0] == split("-", var.region)[0]])
    error_message = "Some zones are on another continent than the bucket in ${var.region}: each shard costs transfer between continents. Choose zones near the region, or make a deployment for each continent."
  }
}
