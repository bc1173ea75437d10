"""Jobs: code that people submit, run in processes of the job user."""
