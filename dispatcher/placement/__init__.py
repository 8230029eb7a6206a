"""Job → node: the pool of a Pod, its cache directory, its history, and the annotations for the extender."""
