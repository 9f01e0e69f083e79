"""The operator, the channel as a kind of it, guarantees, and the structures that make channels fast."""
