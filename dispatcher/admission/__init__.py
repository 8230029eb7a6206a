"""Row → gates: decides which waiting rows are launched now, and tells why the other rows are held."""
