"""Commands that are programs of their own: one file or folder each."""
