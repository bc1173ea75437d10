terraform {
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "7.45.0"
    }
  }

  # `terraform init -backend-config=bucket=STATE_BUCKET -backend-config=prefix=gleaner` completes it.
  backend "gcs" {}
}

provider "google" {
  project = var.project
  region  = var.region

  default_labels = {
    managed-by         = "gleaner"
    gleaner-deployment = var.name
  }
}
