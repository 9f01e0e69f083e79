"""What leaves a device: integer tables to draw from, documents, and certificates of what they claim."""
