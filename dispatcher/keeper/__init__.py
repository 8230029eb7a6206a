"""The cache directories of one node: how large they are, which of them may go, and their removal.

names, sizes ─▶ record (pure) ─▶ plan (pure) ─▶ folder: set aside ─▶ Pods once more ─▶ removal
"""
