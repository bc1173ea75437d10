locals {
  readers = toset(concat(var.operators, var.users))
  # Folder of the data bucket => role of users. Operators have it too.
  people_folders = {
    code        = "create"
    datasets    = "create"
    models      = "create"
    activations = "read"
    set-aside   = "read"
    execs       = "read"
    jobs        = "read"
  }
  people_folder_roles = merge([
    for member in local.readers : { for folder, role in local.people_folders : "${member} ${folder}" => { member = member, folder = folder, role = role } }
  ]...)
}

# State: documents of runs, jobs and TPUs.
resource "google_project_iam_member" "people_read_state" {
  for_each = local.readers
  project  = var.project
  role     = "roles/datastore.viewer"
  member   = each.key

  condition {
    title      = "Database of ${var.name}"
    expression = "resource.name == \"projects/${var.project}/databases/${google_firestore_database.state.name}\""
  }
}

resource "google_storage_managed_folder_iam_member" "people" {
  for_each       = local.people_folder_roles
  bucket         = google_storage_bucket.data.name
  managed_folder = google_storage_managed_folder.data[each.value.folder].name
  role           = google_project_iam_custom_role.storage[each.value.role].id
  member         = each.value.member
}

resource "google_storage_managed_folder_iam_member" "people_read_checkpoints" {
  for_each       = local.readers
  bucket         = google_storage_bucket.checkpoints.name
  managed_folder = google_storage_managed_folder.checkpoints.name
  role           = google_project_iam_custom_role.storage["read"].id
  member         = each.key
}

resource "google_storage_managed_folder_iam_member" "people_read_logs" {
  for_each       = local.readers
  bucket         = google_storage_bucket.logs.name
  managed_folder = google_storage_managed_folder.logs.name
  role           = google_project_iam_custom_role.storage["read"].id
  member         = each.key
}

# A control message pauses, stops, sizes and budgets every run and pool.
resource "google_pubsub_topic_iam_member" "operators_control" {
  for_each = toset(var.operators)
  topic    = google_pubsub_topic.topic["control"].name
  role     = "roles/pubsub.publisher"
  member   = each.key
}
