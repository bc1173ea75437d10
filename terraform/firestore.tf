locals {
  # Kinds of documents that expire. Firestore deletes a document within a day after this time.
  expiring = toset(["attempts", "control", "events", "execs", "hosts", "notices", "tasks", var.jobs_collection])
  # A heartbeat changes these fields of its worker, and no query filters, orders or sums by them.
  unqueried = toset([
    "activity", "claimed_at", "computed_tokens", "costs", "costs_at", "heartbeat_at", "phase_seconds", "progress_at", "received",
    "samples_done", "samples_total", "shards_done", "tokens_done", "tokens_per_s",
  ])
  # Texts and maps of people and programs, by collection. No query reads them, and an index would bill every field of a map.
  texts = {
    (var.jobs_collection) = ["args", "attempts", "code", "command", "env", "environment", "error", "metadata", "ran", "result", "secrets"]
    execs                 = ["argv", "reason"]
    hosts                 = ["error"]
    notices               = ["error", "facts", "reason", "text"]
    pools                 = ["environment"]
    runs                  = ["history"]
  }
  text_fields = merge([
    for collection, fields in local.texts : { for field in fields : "${collection}/${field}" => { collection = collection, field = field } }
  ]...)
}

resource "google_firestore_database" "state" {
  name                    = var.name
  location_id             = coalesce(var.firestore_location, var.region)
  type                    = "FIRESTORE_NATIVE"
  database_edition        = "STANDARD"
  delete_protection_state = "DELETE_PROTECTION_ENABLED"
  deletion_policy         = "ABANDON"
  depends_on              = [google_project_service.service]

  point_in_time_recovery_enablement = var.backups.point_in_time_recovery ? "POINT_IN_TIME_RECOVERY_ENABLED" : "POINT_IN_TIME_RECOVERY_DISABLED"
}

# Documents of jobs and the history of control exist nowhere else.
resource "google_firestore_backup_schedule" "daily" {
  count     = var.backups.daily_days > 0 ? 1 : 0
  database  = google_firestore_database.state.name
  retention = "${var.backups.daily_days * 86400}s"

  daily_recurrence {}
}

resource "google_firestore_field" "expire_at" {
  for_each   = local.expiring
  database   = google_firestore_database.state.name
  collection = each.key
  field      = "expire_at"
  # A destroy keeps the database, and with it the expiry of its documents.
  deletion_policy = "ABANDON"

  ttl_config {}
  # No index: an indexed time limits a collection to 500 writes a second.
  index_config {}
}

resource "google_firestore_field" "heartbeat" {
  for_each        = local.unqueried
  database        = google_firestore_database.state.name
  collection      = "workers"
  field           = each.key
  deletion_policy = "ABANDON"

  index_config {}
}

resource "google_firestore_field" "text" {
  for_each        = local.text_fields
  database        = google_firestore_database.state.name
  collection      = each.value.collection
  field           = each.value.field
  deletion_policy = "ABANDON"

  index_config {}
}

resource "google_project_iam_member" "state" {
  for_each = toset(["control", "worker-api"])
  project  = var.project
  role     = "roles/datastore.user"
  member   = google_service_account.account[each.key].member

  condition {
    title      = "Database ${var.name}"
    expression = "resource.name == \"projects/${var.project}/databases/${google_firestore_database.state.name}\""
  }
}
