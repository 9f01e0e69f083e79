"""Each figure of the project beside its yardstick, outside the package."""
