"""Gates → Job: what a row's Jobs mean, what its next Job looks like, and how it gets made exactly once."""
