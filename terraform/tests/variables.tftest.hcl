mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project        = "my-project-123"
  region         = "us-central1"
  zones          = ["us-central1-a"]
  max_budget_usd = 100
  ticket_key     = "00000000000000000000000000000000"
  artifacts = {
    functions = { file = "functions-0.zip", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
    bundle    = { file = "bundle-1.tar.gz", sha256 = "1111111111111111111111111111111111111111111111111111111111111111" }
  }
}

run "a_project_number" {
  command         = plan
  expect_failures = [var.project]
  variables {
    project = "123456789012"
  }
}

run "a_multi_region" {
  command         = plan
  expect_failures = [var.region]
  variables {
    region = "us"
  }
}

run "a_name_of_three_characters" {
  command         = plan
  expect_failures = [var.name]
  variables {
    name = "abc"
  }
}

run "a_name_with_a_capital" {
  command         = plan
  expect_failures = [var.name]
  variables {
    name = "Gleaner"
  }
}

run "a_name_of_sixteen_characters" {
  command         = plan
  expect_failures = [var.name]
  variables {
    name = "abcdefghijklmnop"
  }
}

run "no_zone" {
  command         = plan
  expect_failures = [var.zones]
  variables {
    zones = []
  }
}

run "a_zone_twice" {
  command         = plan
  expect_failures = [var.zones]
  variables {
    zones = ["us-central1-a", "us-central1-a"]
  }
}

run "a_region_as_zone" {
  command         = plan
  expect_failures = [var.zones]
  variables {
    zones = ["us-central1"]
  }
}

run "a_zone_that_is_not_allowed" {
  command         = plan
  expect_failures = [var.allowed_zones]
  variables {
    allowed_zones = ["us-east5-b"]
  }
}

run "a_folder_of_models" {
  command         = plan
  expect_failures = [var.model_sources]
  variables {
    model_sources = ["folder"]
  }
}

run "a_model_source_with_a_comma" {
  command         = plan
  expect_failures = [var.model_sources]
  variables {
    model_sources = ["gs://models/a,hub"]
  }
}

run "an_accelerator_without_a_size" {
  command         = plan
  expect_failures = [var.accelerator]
  variables {
    accelerator = "v5litepod"
  }
}

run "half_a_worker" {
  command         = plan
  expect_failures = [var.workers_per_zone]
  variables {
    workers_per_zone = 0.5
  }
}

run "more_workers_than_the_ceiling" {
  command         = plan
  expect_failures = [var.max_workers]
  variables {
    max_workers = 0
  }
}

run "no_budget" {
  command         = plan
  expect_failures = [var.max_budget_usd]
  variables {
    max_budget_usd = 0
  }
}

run "a_network_without_a_subnetwork" {
  command         = plan
  expect_failures = [var.network]
  variables {
    network = { name = "default" }
  }
}

run "an_address_without_a_host" {
  command         = plan
  expect_failures = [var.alert_email]
  variables {
    alert_email = "someone"
  }
}

run "a_token_in_place_of_its_secret" {
  command         = plan
  expect_failures = [var.hf_token_secret]
  variables {
    hf_token_secret = "hf_abcdef"
  }
}

run "an_unknown_location" {
  command         = plan
  expect_failures = [var.firestore_location]
  variables {
    firestore_location = "us"
  }
}

run "a_digest_of_another_kind" {
  command         = plan
  expect_failures = [var.artifacts]
  variables {
    artifacts = {
      functions = { file = "functions.zip", sha256 = "latest" }
      bundle    = { file = "bundle.tar.gz", sha256 = "latest" }
    }
  }
}

run "zones_on_another_continent_than_the_bucket" {
  command         = plan
  expect_failures = [check.zones_are_near_the_bucket]
  variables {
    zones = ["europe-west4-b"]
  }
}

run "a_short_ticket_key" {
  command         = plan
  expect_failures = [var.ticket_key]
  variables {
    ticket_key = "secret"
  }
}

run "a_collection_of_the_control_plane" {
  command         = plan
  expect_failures = [var.jobs_collection]
  variables {
    jobs_collection = "workers"
  }
}

run "a_collection_with_a_slash" {
  command         = plan
  expect_failures = [var.jobs_collection]
  variables {
    jobs_collection = "team/jobs"
  }
}

run "everybody_as_a_publisher_of_commands" {
  command         = plan
  expect_failures = [var.exec_publishers]
  variables {
    exec_publishers = ["allUsers"]
  }
}
