# Values that Google would compute. The accounts of a deployment have addresses of their own, so a test sees which account has a role.
mock_data "google_project" {
  defaults = { number = "123456789012" }
}

mock_data "google_storage_project_service_account" {
  defaults = { email_address = "service-123456789012@gs-project-accounts.iam.gserviceaccount.com" }
}

override_resource {
  target = google_service_account.account["control"]
  values = {
    email  = "gleaner-control@my-project-123.iam.gserviceaccount.com"
    member = "serviceAccount:gleaner-control@my-project-123.iam.gserviceaccount.com"
    name   = "projects/my-project-123/serviceAccounts/gleaner-control@my-project-123.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.account["worker-api"]
  values = {
    email  = "gleaner-worker-api@my-project-123.iam.gserviceaccount.com"
    member = "serviceAccount:gleaner-worker-api@my-project-123.iam.gserviceaccount.com"
    name   = "projects/my-project-123/serviceAccounts/gleaner-worker-api@my-project-123.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.account["worker"]
  values = {
    email  = "gleaner-worker@my-project-123.iam.gserviceaccount.com"
    member = "serviceAccount:gleaner-worker@my-project-123.iam.gserviceaccount.com"
    name   = "projects/my-project-123/serviceAccounts/gleaner-worker@my-project-123.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.account["invoker"]
  values = {
    email  = "gleaner-invoker@my-project-123.iam.gserviceaccount.com"
    member = "serviceAccount:gleaner-invoker@my-project-123.iam.gserviceaccount.com"
    name   = "projects/my-project-123/serviceAccounts/gleaner-invoker@my-project-123.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.account["build"]
  values = {
    email  = "gleaner-build@my-project-123.iam.gserviceaccount.com"
    member = "serviceAccount:gleaner-build@my-project-123.iam.gserviceaccount.com"
    name   = "projects/my-project-123/serviceAccounts/gleaner-build@my-project-123.iam.gserviceaccount.com"
  }
}
