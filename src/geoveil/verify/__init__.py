"""Checking promises by draws (``certify``, which is exact, is with the documents), and manipulation."""
