locals {
  # Secrets that worker-api reads for VMs, as projects/P/secrets/S.
  worker_secrets = toset(regexall("projects/[^/]+/secrets/[^/,]+", join(",", compact(concat([var.hf_token_secret, var.git_token_secret], values(var.job_secrets))))))
  # Variable of on-task => its secret.
  notify_secrets = { for variable, name in { GLEANER_NOTIFY_URL = try(var.notify.url_secret, null), GLEANER_NOTIFY_KEY = try(var.notify.key_secret, null) } :
    variable => {
      project = split("/", name)[1]
      secret  = split("/", name)[3]
      version = try(split("/", name)[5], "latest")
    } if name != null
  }
}

resource "google_secret_manager_secret" "ticket_key" {
  secret_id  = "${var.name}-ticket-key"
  depends_on = [google_project_service.service]

  replication {
    auto {}
  }
}

# Write-only: the state holds no part of the key. Terraform writes the key of the first apply, and ignores later keys.
# A new value of `secret_data_wo_version` writes a new key, and ends the tickets of living nodes.
resource "google_secret_manager_secret_version" "ticket_key" {
  secret                 = google_secret_manager_secret.ticket_key.id
  secret_data_wo         = var.ticket_key
  secret_data_wo_version = "1"
}

resource "google_secret_manager_secret_iam_member" "ticket_key" {
  for_each  = toset(["control", "worker-api"])
  secret_id = google_secret_manager_secret.ticket_key.secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.account[each.key].member
}

# VMs have no right to read a secret: worker-api gives each the secrets of the lease that it holds.
resource "google_secret_manager_secret_iam_member" "of_workers" {
  for_each  = local.worker_secrets
  project   = split("/", each.key)[1]
  secret_id = split("/", each.key)[3]
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.account["worker-api"].member
}

resource "google_secret_manager_secret_iam_member" "notify" {
  for_each  = local.notify_secrets
  project   = each.value.project
  secret_id = each.value.secret
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.account["control"].member
}
