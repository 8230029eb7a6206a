"""Row → gates: which waiting rows are launched now, and why the others are not."""
