output "bucket" {
  description = "Bucket of datasets and activations."
  value       = google_storage_bucket.data.name
}

output "worker_api" {
  description = "Address of worker-api, and the audience of its tokens."
  value       = local.urls["worker-api"]
}

output "next_commands" {
  description = "Commands that start, watch and stop work."
  value = {
    start  = "gcloud storage cp my.jsonl gs://${google_storage_bucket.data.name}/datasets/my-run/stream_000.jsonl"
    pause  = "gcloud pubsub topics publish ${google_pubsub_topic.topic["control"].name} --project=${var.project} --message='{\"action\":\"pause\",\"run\":\"my-run\"}'"
    drain  = "gcloud pubsub topics publish ${google_pubsub_topic.topic["control"].name} --project=${var.project} --message='{\"action\":\"scale\",\"pool\":\"${local.topic_prefix}tpu\",\"workers_per_zone\":0}'"
    nodes  = "gcloud compute ${var.tpu_provider == "tpu-api" ? "tpus tpu-vm list --zone=-" : "instances list --filter=labels.managed-by=gleaner"} --project=${var.project}"
    ticks  = "gcloud scheduler jobs describe ${google_cloud_scheduler_job.tick.name} --location=${local.scheduler_region} --project=${var.project}"
    dead   = "gcloud pubsub subscriptions pull ${google_pubsub_subscription.dead.name} --project=${var.project} --limit=10"
    result = "gcloud storage ls gs://${google_storage_bucket.data.name}/activations/my-run/"
  }
}

output "console" {
  description = "Pages of the console."
  value = {
    state     = "https://console.cloud.google.com/firestore/databases/${google_firestore_database.state.name}/data?project=${var.project}"
    bucket    = "https://console.cloud.google.com/storage/browser/${google_storage_bucket.data.name}?project=${var.project}"
    functions = "https://console.cloud.google.com/run?project=${var.project}"
    alerts    = "https://console.cloud.google.com/monitoring/alerting?project=${var.project}"
  }
}

output "ceilings" {
  description = "Limits of the hourly cost, which no message can raise."
  value = {
    max_workers = var.max_workers
    accelerator = var.accelerator
    zones       = local.allowed_zones
  }
}

output "environment" {
  description = "Environment of the commands of gleaner for this deployment."
  value = merge(
    {
      GLEANER_CLOUD = "${var.project}/${var.name}"
    },
    var.jobs_collection == "jobs" ? {} : { GLEANER_JOBS_COLLECTION = var.jobs_collection },
  )
}
