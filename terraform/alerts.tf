locals {
  # Every alert selects the functions of this deployment. Names of services start with the name and a function.
  services_pattern = join("|", [for name in keys(local.functions) : "${var.name}-${name}"])

  # Signal of a log entry => the alert. `signal` in shared/control-plane/calls/log.ts lists the signals.
  signals = {
    ping-failed         = { text = "worker-api does not answer the ping of on-tick. Read the log of both functions.", above = 2 }
    run-failed          = { text = "A run has failed. `gleaner status RUN` says why.", above = 0 }
    budget-spent        = { text = "A run or the deployment has spent its budget. `gleaner status` says which.", above = 0 }
    silence-guard       = { text = "A zone holds silent workers, which cost money. Check worker-api and the network.", above = 0 }
    creates-late        = { text = "Ticks are slow, so requests for nodes are dropped. Read the log of on-tick.", above = 2 }
    creates-stopped     = { text = "Five boots in a row failed, or Cloud TPU refuses every node, so creates stop. The event of the stop has the reason.", above = 0 }
    run-paused          = { text = "A run is paused, because machines died at its work or its model did not arrive. `gleaner status RUN` says why.", above = 0 }
    samples-rejected    = { text = "A run rejects more than half of its samples. rejects.jsonl beside its shards says why.", above = 0 }
    job-failed          = { text = "A job has failed. `gleaner jobs logs JOB` shows its output, and its document says why.", above = 0 }
    job-long            = { text = "A job has run for a long time. `gleaner status` shows it, and a message cancels it.", above = 0 }
    notices-failing     = { text = "The receiver of notifications does not accept them. `gleaner doctor` says why.", above = 0 }
    document-left-alone = { text = "A document has a field that this release does not understand. `gleaner status` names it.", above = 0 }
    orphans             = { text = "Nodes have no document: the database was lost. Run `gleaner rebuild`.", above = 0 }
  }
  channels = google_monitoring_notification_channel.email[*].id
}

resource "google_monitoring_notification_channel" "email" {
  count        = var.alert_email == null ? 0 : 1
  display_name = "Gleaner ${var.name}"
  type         = "email"
  labels       = { email_address = var.alert_email }
  depends_on   = [google_project_service.service]
}

# One metric counts the entries of every signal.
resource "google_logging_metric" "signals" {
  name        = "${var.name}-signals"
  description = "Log entries of the functions with a signal."
  filter      = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=~\"^(${local.services_pattern})$\" AND labels.signal:*"
  depends_on  = [google_project_service.service]

  label_extractors = { signal = "EXTRACT(labels.signal)" }

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    labels {
      key        = "signal"
      value_type = "STRING"
    }
  }
}

resource "google_monitoring_alert_policy" "signal" {
  for_each              = local.signals
  display_name          = "Gleaner ${var.name}: ${each.key}"
  combiner              = "OR"
  notification_channels = local.channels

  conditions {
    display_name = each.key
    condition_threshold {
      filter          = "resource.type=\"cloud_run_revision\" AND metric.type=\"logging.googleapis.com/user/${google_logging_metric.signals.name}\" AND metric.labels.signal=\"${each.key}\""
      comparison      = "COMPARISON_GT"
      threshold_value = each.value.above
      duration        = "0s"
      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_SUM"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }
  # A signal has no value between its entries. So the incident ends, and a later entry notifies again.
  alert_strategy {
    auto_close = "1800s"
  }
  documentation {
    content = each.value.text
  }
  # Monitoring knows a new metric after some minutes, which the builds of the functions take as well.
  depends_on = [google_cloudfunctions2_function.function]
}

resource "google_monitoring_alert_policy" "no_tick" {
  display_name          = "Gleaner ${var.name}: no tick"
  combiner              = "OR"
  notification_channels = local.channels

  conditions {
    display_name = "No tick was completed for 10 minutes"
    condition_absent {
      filter   = "resource.type=\"cloud_run_revision\" AND metric.type=\"logging.googleapis.com/user/${google_logging_metric.signals.name}\" AND metric.labels.signal=\"tick-completed\""
      duration = "600s"
      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_SUM"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }
  documentation {
    content = "Budgets are applied by ticks. Check the job ${var.name}-tick, and the log of ${var.name}-on-tick. `gleaner tick resume` starts a paused job."
  }
  depends_on = [google_cloudfunctions2_function.function]
}

resource "google_monitoring_alert_policy" "dead_letters" {
  display_name          = "Gleaner ${var.name}: dead letters"
  combiner              = "OR"
  notification_channels = local.channels

  conditions {
    display_name = "A message failed 100 times"
    condition_threshold {
      filter          = "resource.type=\"pubsub_subscription\" AND resource.labels.subscription_id=\"${google_pubsub_subscription.dead.name}\" AND metric.type=\"pubsub.googleapis.com/subscription/num_undelivered_messages\""
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"
      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }
  documentation {
    content = "Read the messages: `gcloud pubsub subscriptions pull ${google_pubsub_subscription.dead.name}`."
  }
}

resource "google_monitoring_alert_policy" "errors" {
  display_name          = "Gleaner ${var.name}: errors of functions"
  combiner              = "OR"
  notification_channels = local.channels

  conditions {
    display_name = "A function answers 5xx"
    condition_threshold {
      filter          = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=monitoring.regex.full_match(\"${local.services_pattern}\") AND metric.type=\"run.googleapis.com/request_count\" AND metric.labels.response_code_class=\"5xx\""
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "300s"
      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_SUM"
        cross_series_reducer = "REDUCE_SUM"
        group_by_fields      = ["resource.labels.service_name"]
      }
    }
  }
  alert_strategy {
    auto_close = "1800s"
  }
  documentation {
    content = "A failed message is delivered again. Read the log of the function for the cause."
  }
}
