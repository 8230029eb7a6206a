"""Gates → Job: judges a row by its Jobs, builds the next Job, and makes each Job exactly once."""
