locals {
  hf_token  = try(regex("^projects/(?P<project>[^/]+)/secrets/(?P<secret>[^/]+)", var.hf_token_secret), null)
  git_token = try(regex("^[^=]+=projects/(?P<project>[^/]+)/secrets/(?P<secret>[^/]+)", var.git_token_secret), null)
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

resource "google_secret_manager_secret_iam_member" "hf_token" {
  count     = local.hf_token == null ? 0 : 1
  project   = local.hf_token.project
  secret_id = local.hf_token.secret
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.account["worker"].member
}

resource "google_secret_manager_secret_iam_member" "git_token" {
  count     = local.git_token == null ? 0 : 1
  project   = local.git_token.project
  secret_id = local.git_token.secret
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.account["worker"].member
}

resource "google_secret_manager_secret_iam_member" "notify" {
  for_each  = local.notify_secrets
  project   = each.value.project
  secret_id = each.value.secret
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.account["control"].member
}
