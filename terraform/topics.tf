locals {
  triggers  = jsondecode(file("${path.module}/../functions/triggers.json"))
  functions = { for function in local.triggers.functions : function.name => function }
  # Function => its topic, without the prefix of the deployment.
  events = { for name, function in local.functions : name => function.trigger.topic if function.trigger.kind == "topic" }

  topic_prefix = var.name == "gleaner" ? "" : "${var.name}-"
  topics       = toset(concat(values(local.events), ["dead"]))
  # A tick is due every minute, so an old request for a tick is worthless.
  short_lived = ["tick"]
  notifications = merge([
    for notification in local.triggers.notifications : { for prefix in notification.prefixes : prefix => notification }
  ]...)
  # Account => the topics on which it publishes.
  publishers = {
    control    = ["tasks", "tick", "tpu"]
    worker-api = ["tasks", "tick"]
  }
  publications = merge([
    for account, topics in local.publishers : { for topic in topics : "${account}/${topic}" => { account = account, topic = topic } }
  ]...)
}

resource "google_pubsub_topic" "topic" {
  for_each   = local.topics
  name       = "${local.topic_prefix}${each.key}"
  depends_on = [google_project_service.service]
}

resource "google_pubsub_topic_iam_member" "publisher" {
  for_each = local.publications
  topic    = google_pubsub_topic.topic[each.value.topic].name
  role     = "roles/pubsub.publisher"
  member   = google_service_account.account[each.value.account].member
}

# A publisher on this topic runs commands on every worker, so operators of topic control have no right to it.
resource "google_pubsub_topic_iam_member" "exec_publisher" {
  for_each = toset(var.exec_publishers)
  topic    = google_pubsub_topic.topic["exec"].name
  role     = "roles/pubsub.publisher"
  member   = each.key
}

data "google_storage_project_service_account" "storage" {
  project    = var.project
  depends_on = [google_project_service.service]
}

resource "google_pubsub_topic_iam_member" "storage_publishes" {
  topic  = google_pubsub_topic.topic["objects"].name
  role   = "roles/pubsub.publisher"
  member = "serviceAccount:${data.google_storage_project_service_account.storage.email_address}"
}

# The bucket announces only the folders that the control plane reads: logs and bundles start no function.
resource "google_storage_notification" "object" {
  for_each       = local.notifications
  bucket         = google_storage_bucket.data.name
  topic          = google_pubsub_topic.topic[each.value.topic].id
  payload_format = "JSON_API_V1"
  # Literal: the provider reads a set with an unknown element as a set with "", and refuses it before a plan.
  event_types        = ["OBJECT_FINALIZE"]
  object_name_prefix = each.key
  depends_on         = [google_pubsub_topic_iam_member.storage_publishes]
}

resource "google_pubsub_subscription" "event" {
  for_each             = local.events
  name                 = "${var.name}-${each.value}"
  topic                = google_pubsub_topic.topic[each.value].id
  ack_deadline_seconds = 600
  # Pub/Sub keeps what fails for 7 days, and a late request for a tick for 10 minutes.
  message_retention_duration = contains(local.short_lived, each.value) ? "600s" : "604800s"

  expiration_policy {
    ttl = ""
  }
  # functions-framework makes a CloudEvent of a push to this path.
  push_config {
    push_endpoint = "${local.urls[each.key]}/projects/${var.project}/topics/${google_pubsub_topic.topic[each.value].name}"
    oidc_token {
      service_account_email = google_service_account.account["invoker"].email
      audience              = local.urls[each.key]
    }
  }
  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = contains(local.short_lived, each.value) ? "60s" : "600s"
  }
  # A request for a tick expires before its hundredth attempt, so none becomes a dead letter.
  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.topic["dead"].id
    max_delivery_attempts = 100
  }
  depends_on = [google_cloud_run_v2_service_iam_member.invoker, google_service_account_iam_member.pubsub_signs_as_invoker]
}

# Without a subscription, dead letters are lost.
resource "google_pubsub_subscription" "dead" {
  name                       = "${var.name}-dead"
  topic                      = google_pubsub_topic.topic["dead"].id
  ack_deadline_seconds       = 60
  message_retention_duration = "2678400s"

  expiration_policy {
    ttl = ""
  }
}

resource "google_pubsub_topic_iam_member" "pubsub_publishes_dead_letters" {
  topic  = google_pubsub_topic.topic["dead"].name
  role   = "roles/pubsub.publisher"
  member = local.pubsub_agent
}

resource "google_pubsub_subscription_iam_member" "pubsub_moves_dead_letters" {
  for_each     = local.events
  subscription = google_pubsub_subscription.event[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}
