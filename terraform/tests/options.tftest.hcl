mock_provider "google" {
  source = "./tests/mocks"
}

# An apply takes a second, so each run has settings that do not touch each other.

run "settings_of_places_people_and_documents" {
  variables {
    zones              = ["us-east5-b"]
    allowed_zones      = ["us-east5-b", "us-east5-c", "us-west4-a"]
    hf_token_secret    = "projects/other-project/secrets/hub/versions/3"
    git_token_secret   = "github.com=projects/other-project/secrets/git"
    job_secrets        = { wandb = "projects/other-project/secrets/wandb/versions/2", old = "projects/other-project/secrets/wandb/versions/1" }
    notify             = { format = "slack", url_secret = "projects/other-project/secrets/slack/versions/2" }
    alert_email        = "someone@example.com"
    jobs_collection    = "work"
    firestore_location = "nam5"
    exec_publishers    = ["group:operators@example.com"]
    operators          = ["group:operators@example.com"]
    users              = ["user:someone@example.com"]
    backups            = { daily_days = 0, point_in_time_recovery = false }
    audit_tpu_calls    = true
  }

  # A network of its own has a subnet and Cloud NAT in each allowed region.
  assert {
    condition     = keys(google_compute_subnetwork.workers) == ["us-east5", "us-west4"] && keys(google_compute_router_nat.nat) == ["us-east5", "us-west4"]
    error_message = "Each allowed region needs a subnet and Cloud NAT."
  }
  assert {
    condition     = alltrue([for subnet in google_compute_subnetwork.workers : subnet.private_ip_google_access && subnet.name == "gleaner-workers"]) && length(distinct(values(google_compute_subnetwork.workers)[*].ip_cidr_range)) == 2
    error_message = "The subnets need one name, Private Google Access and ranges of their own."
  }

  # TPUs of one host need no way to each other.
  assert {
    condition     = length(google_compute_firewall.slices) == 0
    error_message = "The network of TPUs with one host admits no connection."
  }

  # Only worker-api reads the secrets of jobs and the tokens.
  assert {
    condition     = join(",", keys(google_secret_manager_secret_iam_member.of_workers)) == "projects/other-project/secrets/git,projects/other-project/secrets/hub,projects/other-project/secrets/wandb"
    error_message = "The role must be on each named secret."
  }
  assert {
    condition     = alltrue([for id, grant in google_secret_manager_secret_iam_member.of_workers : grant.member == "serviceAccount:gleaner-worker-api@my-project-123.iam.gserviceaccount.com" && id == "projects/${grant.project}/secrets/${grant.secret_id}"])
    error_message = "Only worker-api may read the secrets."
  }
  assert {
    condition     = alltrue([for function in google_cloudfunctions2_function.function : function.service_config[0].environment_variables.GLEANER_JOB_SECRETS == "old=projects/other-project/secrets/wandb/versions/1,wandb=projects/other-project/secrets/wandb/versions/2"])
    error_message = "Each function needs the names of the secrets."
  }

  # Only on-task knows the address of notifications.
  assert {
    condition     = google_secret_manager_secret_iam_member.notify["GLEANER_NOTIFY_URL"].member == "serviceAccount:gleaner-control@my-project-123.iam.gserviceaccount.com"
    error_message = "The event functions must read the address."
  }
  assert {
    condition = [for name, function in google_cloudfunctions2_function.function : name if anytrue([for variable in function.service_config[0].secret_environment_variables :
    variable.key == "GLEANER_NOTIFY_URL" && variable.project_id == "other-project" && variable.secret == "slack" && variable.version == "2"])] == ["on-task"]
    error_message = "on-task alone needs the secret."
  }
  assert {
    condition     = alltrue([for function in google_cloudfunctions2_function.function : function.service_config[0].environment_variables.GLEANER_NOTIFY == "slack"])
    error_message = "Each function writes notifications."
  }

  # Alerts go to the address.
  assert {
    condition = alltrue([for policy in concat(values(google_monitoring_alert_policy.signal), [google_monitoring_alert_policy.no_tick, google_monitoring_alert_policy.dead_letters, google_monitoring_alert_policy.errors]) :
    policy.notification_channels == tolist([google_monitoring_notification_channel.email[0].id])])
    error_message = "Each alert needs the channel."
  }

  # Jobs have another collection, and a database of a multi-region.
  assert {
    condition     = [for criterion in google_eventarc_trigger.document["on-job"].matching_criteria : criterion.value if criterion.attribute == "document"] == ["work/{id}"] && google_eventarc_trigger.document["on-job"].location == "us-central1"
    error_message = "The trigger needs the collection, and the region that serves the multi-region."
  }
  assert {
    condition     = alltrue([for function in google_cloudfunctions2_function.function : function.service_config[0].environment_variables.GLEANER_JOBS_COLLECTION == "work"])
    error_message = "Each function needs the collection."
  }
  assert {
    condition     = output.environment.GLEANER_JOBS_COLLECTION == "work"
    error_message = "The commands need the collection of jobs."
  }
  assert {
    condition     = contains(keys(google_firestore_field.expire_at), "work") && contains(keys(google_firestore_field.text), "work/code") && !contains(keys(google_firestore_field.expire_at), "jobs")
    error_message = "The documents of the collection expire, and their texts have no index."
  }
  assert {
    condition     = [for grant in google_pubsub_topic_iam_member.exec_publisher : "${grant.topic} ${grant.member}"] == ["exec group:operators@example.com"]
    error_message = "The members may publish on topic exec, and on no other."
  }

  # People get the rights of their purpose.
  assert {
    condition     = [for grant in google_pubsub_topic_iam_member.operators_control : "${grant.topic} ${grant.member}"] == ["control group:operators@example.com"]
    error_message = "Only operators may publish on topic control."
  }
  assert {
    condition     = length(google_storage_managed_folder_iam_member.people) == 14 && length(google_project_iam_member.people_read_state) == 2
    error_message = "Operators and users reach the folders of people, and read the state."
  }

  # Backups and the audit of reads are settings.
  assert {
    condition     = length(google_firestore_backup_schedule.daily) == 0 && google_firestore_database.state.point_in_time_recovery_enablement == "POINT_IN_TIME_RECOVERY_DISABLED"
    error_message = "Backups can be left out."
  }
  assert {
    condition     = google_project_iam_audit_config.tpu[0].service == "tpu.googleapis.com" && length(google_project_iam_audit_config.tpu[0].audit_log_config) == 3
    error_message = "The log keeps reads and writes of Cloud TPU."
  }
}

run "another_deployment_with_another_pool" {
  variables {
    max_hosts          = 16
    name               = "team-b"
    zones              = ["us-east5-b", "us-west4-a", "us-central1-a"]
    network            = { nat = false, external_ips = true }
    firestore_location = "nam7"
    accelerator        = "v6e-8"
    spot               = false
    provisioning       = "queued-resource"
    timings            = { create_s = 900, retry_s = 30 }
  }

  # Another deployment has names of its own.
  assert {
    condition     = sort(values(google_pubsub_topic.topic)[*].name) == sort([for topic in keys(google_pubsub_topic.topic) : "team-b-${topic}"])
    error_message = "Each topic needs the prefix of the deployment."
  }
  assert {
    condition     = alltrue([for name in concat(values(google_cloudfunctions2_function.function)[*].name, values(google_service_account.account)[*].account_id, values(google_pubsub_subscription.event)[*].name) : startswith(name, "team-b-")])
    error_message = "Each function, account and subscription needs the prefix of the deployment."
  }
  assert {
    condition     = google_firestore_database.state.name == "team-b" && google_storage_bucket.data.name == "my-project-123-team-b" && google_storage_bucket.logs.name == "my-project-123-team-b-logs"
    error_message = "The database and the buckets need the name of the deployment."
  }

  # A subnet keeps its range when a region is appended.
  assert {
    condition     = google_compute_subnetwork.workers["us-east5"].ip_cidr_range == "10.64.0.0/20" && google_compute_subnetwork.workers["us-west4"].ip_cidr_range == "10.64.16.0/20"
    error_message = "The range of a region must depend on the regions before it alone."
  }

  # The hosts of a slice reach each other, and nobody else reaches them.
  assert {
    condition     = google_compute_firewall.slices[0].source_service_accounts == google_compute_firewall.slices[0].target_service_accounts && one(google_compute_firewall.slices[0].source_service_accounts) == "${google_service_account.account["worker"].account_id}@${var.project}.iam.gserviceaccount.com"
    error_message = "TPUs of several hosts need a rule from the account of workers to itself."
  }

  # Cloud NAT can be left out.
  assert {
    condition     = length(google_compute_router_nat.nat) == 0 && google_cloudfunctions2_function.function["on-tpu"].service_config[0].environment_variables.GLEANER_EXTERNAL_IPS == "true"
    error_message = "Without Cloud NAT, nodes may have external addresses."
  }

  # A database in nam7 has no trigger.
  assert {
    condition     = length(google_eventarc_trigger.document) == 0
    error_message = "Eventarc serves nam7 in no region."
  }

  # Each generation has its runtime version.
  assert {
    condition = alltrue([for function in google_cloudfunctions2_function.function : [for name in ["RUNTIME_VERSION", "SPOT", "PROVISIONING", "CREATE_S", "RETRY_S"] :
    function.service_config[0].environment_variables["GLEANER_${name}"]] == ["v2-alpha-tpuv6e", "false", "queued-resource", "900", "30"]])
    error_message = "Each function needs the settings of the default pool."
  }
}

run "workers_without_a_way_to_the_internet_on_instances" {
  variables {
    network       = { nat = false }
    tpu_provider  = "compute-engine"
    tpu_providers = ["compute-engine", "tpu-api"]
    accelerator   = "tpu7x-8"
    disk_gb       = 200
    spot          = false
    provisioning  = "flex-start"
  }
  assert {
    condition     = length(setsubtract(["compute.instances.create", "compute.disks.create", "compute.subnetworks.use", "compute.zoneOperations.get", "tpu.nodes.create"], google_project_iam_custom_role.tpu.permissions)) == 0
    error_message = "The role needs the rights of both providers."
  }
  assert {
    condition = [for name in ["PROVIDER", "PROVIDERS", "RUNTIME_VERSION", "DISK_GB", "PROVISIONING"] :
    google_cloudfunctions2_function.function["on-tpu"].service_config[0].environment_variables["GLEANER_${name}"]] == ["compute-engine", "compute-engine,tpu-api", "ubuntu-accel-2404-amd64-tpu-tpu7x", "200", "flex-start"]
    error_message = "Each function needs the provider, the image and the disk."
  }
  assert {
    condition     = alltrue([for function in google_cloudfunctions2_function.function : function.service_config[0].environment_variables.GLEANER_INTERNET == "false"])
    error_message = "Each function needs to know that workers reach no source of git."
  }
}

run "an_existing_network_is_used_as_it_is" {
  variables {
    network = { name = "shared", subnetwork = "tpus" }
  }
  assert {
    condition     = length(google_compute_network.network) + length(google_compute_subnetwork.workers) + length(google_compute_router.nat) == 0
    error_message = "An existing network gets no resource."
  }
  assert {
    condition     = google_cloudfunctions2_function.function["on-tpu"].service_config[0].environment_variables.GLEANER_NETWORK == "shared" && google_cloudfunctions2_function.function["on-tpu"].service_config[0].environment_variables.GLEANER_SUBNETWORK == "tpus"
    error_message = "Nodes must join the existing network."
  }
}
