# Of every test.
project        = "my-project-123"
region         = "us-central1"
zones          = ["us-central1-a"]
max_budget_usd = 100
ticket_key     = "00000000000000000000000000000000"
artifacts = {
  functions   = { file = "functions-0.zip", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
  bundle      = { file = "bundle-1.tar.gz", sha256 = "1111111111111111111111111111111111111111111111111111111111111111" }
  environment = { file = "environment-2.tar.gz", sha256 = "2222222222222222222222222222222222222222222222222222222222222222" }
}
