resource "google_cloud_scheduler_job" "tick" {
  name     = "${var.name}-tick"
  region   = local.scheduler_region
  schedule = "* * * * *"
  # `paused` stays out: `gleaner tick pause` changes the job, and an apply keeps the change.

  pubsub_target {
    topic_name = google_pubsub_topic.topic["tick"].id
    data       = base64encode("{}")
    attributes = { source = "scheduler" }
  }
  depends_on = [google_project_service.service]
}
