"""One file per measured promise: ratios in one run, on real servers."""
