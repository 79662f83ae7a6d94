"""Java's own pulsar-admin, all of its commands against a region."""
