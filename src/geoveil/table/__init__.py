"""Tables of locations: read and written in batches, so that memory does not grow with the file.

CSV, Parquet and GeoJSON are told apart by the ending of the name; ``-`` is a pipe. What comes in is
checked once, here, and no message ever repeats a value: a bad row is named by its number.
"""
