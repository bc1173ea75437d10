locals {
  # Functions that new documents start.
  documents = { for name, function in local.functions : name => function.trigger if function.trigger.kind == "document" }

  # By Google's page, Eventarc serves nam5 and eur3 in one region each, and nam7 in none. Its API has named the multi-region to users.
  database_location = coalesce(var.firestore_location, var.region)
  eventarc_location = coalesce(var.eventarc_location, lookup({ nam5 = "us-central1", eur3 = "europe-west4", nam7 = "none" }, local.database_location, local.database_location))
}

resource "google_eventarc_trigger" "document" {
  for_each                = { for name, trigger in local.documents : name => trigger if local.eventarc_location != "none" }
  name                    = "${var.name}-${each.key}"
  location                = local.eventarc_location
  service_account         = google_service_account.account["invoker"].email
  event_data_content_type = "application/protobuf"

  matching_criteria {
    attribute = "type"
    value     = "google.cloud.firestore.document.v1.${each.value.event}"
  }
  matching_criteria {
    attribute = "database"
    value     = google_firestore_database.state.name
  }
  # The variable takes the place of the collection in triggers.json.
  matching_criteria {
    attribute = "document"
    operator  = "match-path-pattern"
    value     = "${var.jobs_collection}/{id}"
  }
  destination {
    cloud_run_service {
      service = google_cloudfunctions2_function.function[each.key].name
      region  = var.region
    }
  }
  depends_on = [google_cloud_run_v2_service_iam_member.invoker, google_project_iam_member.invoker_receives_events]

  lifecycle {
    # A trigger knows its database by more than the name.
    replace_triggered_by = [google_firestore_database.state.uid]
  }
}

# Events have no smaller resource than the project.
resource "google_project_iam_member" "invoker_receives_events" {
  project = var.project
  role    = "roles/eventarc.eventReceiver"
  member  = google_service_account.account["invoker"].member
}
