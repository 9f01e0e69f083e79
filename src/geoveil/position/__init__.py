"""Reports from positions: the promise holds between any two of them, whatever the cells."""
