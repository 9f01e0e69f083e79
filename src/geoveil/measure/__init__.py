"""What a mechanism costs and hides, and how far an estimate is from the truth."""
