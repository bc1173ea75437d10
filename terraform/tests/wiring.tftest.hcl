mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  zones = ["us-central1-a", "us-central1-ai1a", "us-east5-b"]
}

run "a_deployment" {
  # Functions have the limits of triggers.json.
  assert {
    condition     = length(google_cloudfunctions2_function.function) == length(jsondecode(file("../functions/triggers.json")).functions)
    error_message = "Each function of triggers.json needs one cloud function."
  }
  assert {
    condition = alltrue([for function in jsondecode(file("../functions/triggers.json")).functions :
      google_cloudfunctions2_function.function[function.name].service_config[0].available_memory == function.memory
      && google_cloudfunctions2_function.function[function.name].service_config[0].available_cpu == tostring(function.cpu)
      && google_cloudfunctions2_function.function[function.name].service_config[0].timeout_seconds == function.timeout_s
      && google_cloudfunctions2_function.function[function.name].service_config[0].max_instance_count == function.instances
      && google_cloudfunctions2_function.function[function.name].service_config[0].max_instance_request_concurrency == function.concurrency
    ])
    error_message = "A function has other limits than triggers.json."
  }
  assert {
    condition     = alltrue([for name, function in google_cloudfunctions2_function.function : function.build_config[0].entry_point == name && function.build_config[0].runtime == "nodejs24"])
    error_message = "A function has another entry point than its name, or another runtime than nodejs24."
  }
  assert {
    condition     = alltrue([for function in google_cloudfunctions2_function.function : length(function.event_trigger) == 0 && function.service_config[0].all_traffic_on_latest_revision])
    error_message = "A function has an event trigger, whose subscription nothing declares, or serves an old revision."
  }
  assert {
    condition     = [for name, function in google_cloudfunctions2_function.function : name if function.service_config[0].ingress_settings == "ALLOW_ALL"] == ["worker-api"]
    error_message = "Only worker-api may take requests from outside the project."
  }

  # Functions know worker-api without a reference to it.
  assert {
    condition     = alltrue([for function in google_cloudfunctions2_function.function : function.service_config[0].environment_variables.GLEANER_WORKER_API == "https://gleaner-worker-api-123456789012.us-central1.run.app"])
    error_message = "A function has another address of worker-api."
  }
  assert {
    condition     = [for name, function in google_cloudfunctions2_function.function : name if length(function.service_config[0].secret_environment_variables) > 0] == ["on-tpu", "worker-api"]
    error_message = "Only on-tpu and worker-api need the ticket key."
  }
  assert {
    condition     = alltrue([for name in ["on-tpu", "worker-api"] : google_cloudfunctions2_function.function[name].service_config[0].secret_environment_variables[0].key == "GLEANER_TICKET_KEY"])
    error_message = "The ticket key needs the name GLEANER_TICKET_KEY."
  }
  assert {
    condition     = google_secret_manager_secret_version.ticket_key.secret_data == null
    error_message = "The ticket key must not reach the state."
  }

  # Topics push to their functions.
  assert {
    condition = { for name, subscription in google_pubsub_subscription.event : name => subscription.push_config[0].push_endpoint } == {
      for function in jsondecode(file("../functions/triggers.json")).functions : function.name =>
      "https://gleaner-${function.name}-123456789012.us-central1.run.app/projects/my-project-123/topics/${function.trigger.topic}" if function.trigger.kind == "topic"
    }
    error_message = "Each topic of triggers.json needs one push subscription to its function."
  }
  assert {
    condition = alltrue([for name, subscription in google_pubsub_subscription.event :
      subscription.push_config[0].oidc_token[0].service_account_email == "gleaner-invoker@my-project-123.iam.gserviceaccount.com"
      && subscription.push_config[0].oidc_token[0].audience == "https://gleaner-${name}-123456789012.us-central1.run.app"
    ])
    error_message = "A push needs a token of the invoker for its function."
  }
  assert {
    condition     = alltrue([for subscription in google_pubsub_subscription.event : subscription.ack_deadline_seconds == 600 && subscription.expiration_policy[0].ttl == ""])
    error_message = "A subscription needs 600 s for a call, and never expires."
  }
  assert {
    condition     = [for function in keys(google_pubsub_subscription.event) : function if !contains(keys(google_cloud_run_v2_service_iam_member.invoker), function)] == []
    error_message = "A function does not admit the invoker."
  }

  # Failed messages are retried and kept.
  assert {
    condition     = alltrue([for name, subscription in google_pubsub_subscription.event : subscription.retry_policy[0].minimum_backoff == "10s" && subscription.retry_policy[0].maximum_backoff == (name == "on-tick" ? "60s" : "600s")])
    error_message = "A subscription needs a retry policy of 10 to 600 s, and of 10 to 60 s for ticks."
  }
  assert {
    condition     = alltrue([for name, subscription in google_pubsub_subscription.event : subscription.dead_letter_policy[0].dead_letter_topic == google_pubsub_topic.topic["dead"].id && subscription.dead_letter_policy[0].max_delivery_attempts == 100])
    error_message = "Each subscription needs the dead-letter topic."
  }
  assert {
    condition     = google_pubsub_subscription.event["on-tick"].message_retention_duration == "600s"
    error_message = "A request for a tick ends after 600 s, before its hundredth attempt."
  }
  assert {
    condition     = google_pubsub_subscription.dead.topic == google_pubsub_topic.topic["dead"].id && google_pubsub_subscription.dead.expiration_policy[0].ttl == ""
    error_message = "Dead letters need a subscription that never expires."
  }
  assert {
    condition     = keys(google_pubsub_subscription_iam_member.pubsub_moves_dead_letters) == keys(google_pubsub_subscription.event)
    error_message = "Pub/Sub needs the role subscriber on each subscription with dead letters."
  }

  # Documents of jobs start on-job.
  assert {
    condition = sort([for criterion in google_eventarc_trigger.document["on-job"].matching_criteria : "${criterion.attribute} ${coalesce(criterion.operator, "=")} ${criterion.value}"]) == tolist([
      "database = gleaner",
      "document match-path-pattern jobs/{id}",
      "type = google.cloud.firestore.document.v1.created",
    ])
    error_message = "The trigger needs new documents of jobs in the database of the deployment."
  }
  assert {
    condition     = google_eventarc_trigger.document["on-job"].location == "us-central1" && google_eventarc_trigger.document["on-job"].event_data_content_type == "application/protobuf"
    error_message = "The trigger needs the location of the database, and the content type that Firestore sends."
  }
  assert {
    condition     = google_eventarc_trigger.document["on-job"].service_account == "gleaner-invoker@my-project-123.iam.gserviceaccount.com" && google_cloud_run_v2_service_iam_member.invoker["on-job"].member == "serviceAccount:gleaner-invoker@my-project-123.iam.gserviceaccount.com"
    error_message = "The trigger calls on-job as the invoker, which the function admits."
  }
  assert {
    condition     = google_eventarc_trigger.document["on-job"].destination[0].cloud_run_service[0].service == "gleaner-on-job" && google_eventarc_trigger.document["on-job"].destination[0].cloud_run_service[0].region == "us-central1"
    error_message = "The trigger needs the service of on-job as its destination."
  }
  assert {
    condition     = length(google_pubsub_topic_iam_member.exec_publisher) == 0
    error_message = "No member may run commands on workers by default."
  }

  # Objects and minutes start functions.
  assert {
    condition = { for prefix, notification in google_storage_notification.object : prefix => notification.event_types } == {
      for pair in flatten([for notification in jsondecode(file("../functions/triggers.json")).notifications : [for prefix in notification.prefixes : { prefix = prefix, event = notification.event }]]) : pair.prefix => toset([pair.event])
    }
    error_message = "The bucket announces finished objects of datasets/ and activations/ alone."
  }
  assert {
    condition     = alltrue([for notification in google_storage_notification.object : notification.topic == google_pubsub_topic.topic["objects"].id && notification.payload_format == "JSON_API_V1"])
    error_message = "Notifications go to the topic objects, with the resource of the object."
  }
  assert {
    condition     = google_cloud_scheduler_job.tick.schedule == "* * * * *" && google_cloud_scheduler_job.tick.pubsub_target[0].attributes == tomap({ source = "scheduler" }) && google_cloud_scheduler_job.tick.pubsub_target[0].data != ""
    error_message = "The job asks for a tick every minute, with the attribute source=scheduler and data."
  }

  # Data is private and kept.
  assert {
    condition     = alltrue([for bucket in [google_storage_bucket.data, google_storage_bucket.logs] : bucket.uniform_bucket_level_access && bucket.public_access_prevention == "enforced"])
    error_message = "Each bucket needs uniform access and public access prevention."
  }
  assert {
    condition     = google_storage_bucket.logs.soft_delete_policy[0].retention_duration_seconds == 0 && google_storage_bucket.data.soft_delete_policy[0].retention_duration_seconds == 604800
    error_message = "Only the data bucket keeps deleted objects."
  }
  assert {
    condition     = [for rule in google_storage_bucket.data.lifecycle_rule : one(rule.condition).matches_prefix if one(rule.action).type == "Delete"] == [tolist(["partials/"]), tolist(["activations/"]), tolist(["code/doctor/"])]
    error_message = "Only partial shards, outputs with a custom time, and writes of the doctor may expire in the data bucket."
  }
  assert {
    condition     = google_storage_bucket.data.deletion_policy == "ABANDON" && google_firestore_database.state.deletion_policy == "ABANDON"
    error_message = "A destroy must keep the data bucket and the database."
  }
  assert {
    condition     = google_firestore_database.state.delete_protection_state == "DELETE_PROTECTION_ENABLED" && google_firestore_database.state.type == "FIRESTORE_NATIVE" && google_firestore_database.state.database_edition == "STANDARD"
    error_message = "The database needs delete protection, Native mode and the Standard edition."
  }
  assert {
    condition     = keys(google_firestore_field.expire_at) == ["attempts", "control", "events", "execs", "hosts", "jobs", "notices", "tasks"] && alltrue([for field in google_firestore_field.expire_at : length(field.ttl_config) == 1 && length(field.index_config) == 1 && length(field.index_config[0].indexes) == 0])
    error_message = "Eight kinds of documents expire, without an index of expire_at."
  }

  # The database has backups.
  assert {
    condition     = google_firestore_backup_schedule.daily[0].retention == "604800s" && google_firestore_database.state.point_in_time_recovery_enablement == "POINT_IN_TIME_RECOVERY_ENABLED"
    error_message = "The database needs daily backups of seven days, and point-in-time recovery."
  }
}
