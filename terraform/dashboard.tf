# The pages behind Identity-Aware Proxy. Without members there is no service, no account and no role.
locals {
  has_dashboard = length(var.dashboard_members) > 0
  # Folders of the data bucket that the pages read.
  dashboard_folders = local.has_dashboard ? ["activations", "execs", "functions", "jobs"] : []
  # IAP calls the service as this account, which `gleaner deploy` makes.
  iap_agent = "serviceAccount:service-${local.project_number}@gcp-sa-iap.iam.gserviceaccount.com"
}

resource "google_cloud_run_v2_service" "dashboard" {
  count    = local.has_dashboard ? 1 : 0
  name     = "${var.name}-dashboard"
  location = var.region
  # IAP takes the requests of browsers, and lets those of members pass.
  ingress             = "INGRESS_TRAFFIC_ALL"
  iap_enabled         = true
  deletion_protection = false

  template {
    service_account = google_service_account.account["dashboard"].email
    # An open page is one request. Its browser connects again at the end of an hour.
    timeout                          = "3600s"
    max_instance_request_concurrency = 200

    # One instance, so that one poll serves every browser of a page.
    scaling {
      min_instance_count = 0
      max_instance_count = 1
    }
    containers {
      # Google's image of Node 24, which has no code of ours: Terraform can build no image.
      image   = "${var.region}-docker.pkg.dev/serverless-runtimes/google-24-full/runtimes/nodejs24"
      command = ["node"]
      args    = ["--input-type=module-typescript", "--eval", file("${path.module}/start-dashboard.ts")]

      resources {
        limits            = { cpu = "1", memory = "1Gi" }
        cpu_idle          = true
        startup_cpu_boost = true
      }
      dynamic "env" {
        for_each = merge(local.environment, {
          GLEANER_FUNCTIONS    = var.artifacts.functions.sha256
          GLEANER_IAP_AUDIENCE = "/projects/${local.project_number}/locations/${var.region}/services/${var.name}-dashboard"
        })
        content {
          name  = env.key
          value = env.value
        }
      }
    }
  }
  depends_on = [
    google_storage_bucket_object.functions,
    google_storage_managed_folder_iam_member.dashboard,
  ]
}

resource "google_iap_web_cloud_run_service_iam_member" "dashboard" {
  for_each               = toset(var.dashboard_members)
  cloud_run_service_name = google_cloud_run_v2_service.dashboard[0].name
  location               = var.region
  role                   = "roles/iap.httpsResourceAccessor"
  member                 = each.key
}

resource "google_cloud_run_v2_service_iam_member" "iap_calls_dashboard" {
  count    = local.has_dashboard ? 1 : 0
  name     = google_cloud_run_v2_service.dashboard[0].name
  location = var.region
  role     = "roles/run.invoker"
  member   = local.iap_agent
}

resource "google_project_iam_member" "dashboard_reads_state" {
  count   = local.has_dashboard ? 1 : 0
  project = var.project
  role    = "roles/datastore.viewer"
  member  = google_service_account.account["dashboard"].member

  condition {
    title      = "Database of ${var.name}"
    expression = "resource.name == \"projects/${var.project}/databases/${google_firestore_database.state.name}\""
  }
}

resource "google_storage_managed_folder_iam_member" "dashboard" {
  for_each       = toset(local.dashboard_folders)
  bucket         = google_storage_bucket.data.name
  managed_folder = google_storage_managed_folder.data[each.key].name
  role           = google_project_iam_custom_role.storage["read"].id
  member         = google_service_account.account["dashboard"].member
}

resource "google_storage_managed_folder_iam_member" "dashboard_reads_logs" {
  count          = local.has_dashboard ? 1 : 0
  bucket         = google_storage_bucket.logs.name
  managed_folder = google_storage_managed_folder.logs.name
  role           = google_project_iam_custom_role.storage["read"].id
  member         = google_service_account.account["dashboard"].member
}
